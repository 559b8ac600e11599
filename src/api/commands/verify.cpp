#include "api/commands/verify.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "api/activation.h"
#include "api/device_choice.h"
#include "api/model_source.h"
#include "base/error.h"
#include "kernels/sample/sample.h"
#include "model/model.h"

namespace nibble::commands {
namespace {

using model::BatchPlan;
using model::Model;
using model::TapPlace;

constexpr std::int32_t kPageSize = 64;

const char* block_name(TapPlace place) {
  switch (place) {
    case TapPlace::kAttention: return "attention";
    case TapPlace::kRouter: return "router";
    case TapPlace::kExperts: return "experts";
    case TapPlace::kHead: return "head";
  }
  return "unknown";
}

// float32: a sum of k products in any order errs by at most k units in the last place of the
// largest partial sum; a block chains products of at most four inner sizes. bf16: four roundings to
// 8 bits along a block, each of which may fall the other way. int8: two more, x and h of the
// experts, to steps of a 127th of the largest of 32 values, which is at most sqrt(32) times their
// root mean square.
double relative_bound(const model::ModelConfig& config, Activation activation) {
  const double depth = config.hidden + config.num_heads * config.head_dim + config.intermediate +
                       std::max(config.window, config.head_dim);
  switch (activation) {
    case Activation::kF32: return depth * 0x1p-24;
    case Activation::kBf16: return 4.0 * 0x1p-8;
    case Activation::kInt8: return 4.0 * 0x1p-8 + 2.0 * std::sqrt(32.0) / 127.0;
  }
  return 0.0;
}

std::vector<std::int32_t> token_ids(const VerifyOptions& options, std::int32_t vocab) {
  std::vector<std::int32_t> ids = options.ids;
  for (std::int32_t i = 0; options.ids.empty() && i < options.num_tokens; ++i) {
    const auto word = kernels::philox(options.seed, static_cast<std::uint64_t>(i), 0)[0];
    ids.push_back(static_cast<std::int32_t>(word % static_cast<std::uint32_t>(vocab)));
  }
  return ids;
}

// All tokens as one sequence, logits for each.
BatchPlan whole_plan(const std::vector<std::int32_t>& ids) {
  BatchPlan plan{.token_ids = ids, .page_size = kPageSize};
  const auto num_rows = static_cast<std::int32_t>(ids.size());
  model::SequencePlan sequence{.num_rows = num_rows};
  for (model::PageTable& table : sequence.tables) {
    for (std::int32_t page = 0; page * kPageSize < num_rows; ++page) {
      table.pages.push_back(page);
    }
  }
  plan.sequences.push_back(std::move(sequence));
  for (std::int32_t row = 0; row < num_rows; ++row) {
    plan.logit_rows.push_back(row);
  }
  return plan;
}

Result<std::unique_ptr<Model>> load(const VerifyOptions& options, const ModelSource& source,
                                    model::KernelChoice kernels, std::int32_t num_rows) {
  const DType activation = stored_dtype(options.activation);
  const std::int32_t pages = (num_rows + kPageSize - 1) / kPageSize;
  return source.load({.activation = activation,
                      .kv_dtype = cache_dtype(options.activation, options.kv_cache),
                      .int8_experts = options.activation == Activation::kInt8,
                      .kernels = kernels,
                      .num_threads = options.num_threads,
                      .max_batch_tokens = num_rows,
                      .max_logit_rows = num_rows,
                      .max_position = num_rows,
                      .page_size = kPageSize,
                      .num_pages = {pages, pages}});
}

VerifyRow compare(std::span<const float> found, std::span<const float> wanted,
                  std::int32_t num_rows, double bound) {
  VerifyRow row;
  double difference = 0.0;
  double norm = 0.0;
  std::size_t worst = 0;
  bool has_nan = false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double delta = std::abs(double{found[i]} - wanted[i]);
    has_nan |= std::isnan(delta);
    if (delta > row.largest_difference) {
      row.largest_difference = delta;
      worst = i;
    }
    difference += delta * delta;
    norm += double{wanted[i]} * wanted[i];
  }
  const std::size_t cols = wanted.size() / static_cast<std::size_t>(num_rows);
  row.at_row = static_cast<std::int32_t>(worst / cols);
  row.at_column = static_cast<std::int32_t>(worst % cols);
  row.relative_difference = norm > 0.0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  row.is_within_bound = !has_nan && row.relative_difference <= bound;
  return row;
}

}  // namespace

Result<VerifyReport> verify(const VerifyOptions& options,
                            const std::function<void(std::int32_t, std::int32_t)>& progress) {
  NIBBLE_ASSIGN_OR_RETURN(const ModelSource source,
                          find_source(options.model, options.load_format));
  const model::ModelConfig& config = source.config;
  const std::vector<std::int32_t> ids = token_ids(options, config.vocab);
  if (ids.empty() || static_cast<std::int64_t>(ids.size()) > config.max_position) {
    return error(Code::kInvalidArgument, "verify: want 1 to {} tokens, found {}",
                 config.max_position, ids.size());
  }
  NIBBLE_ASSIGN_OR_RETURN(const ChosenDevice device, choose_device(options.device));
  const auto num_rows = static_cast<std::int32_t>(ids.size());
  const BatchPlan plan = whole_plan(ids);
  std::vector<float> logits(ids.size() * static_cast<std::size_t>(config.vocab));
  VerifyReport report{.device = device.reason,
                      .activation = activation_name(options.activation),
                      .kv_cache = cache_name(cache_dtype(options.activation, options.kv_cache)),
                      .num_tokens = num_rows,
                      .bound = relative_bound(config, options.activation)};

  std::vector<std::vector<float>> wanted;
  {
    NIBBLE_ASSIGN_OR_RETURN(const std::unique_ptr<Model> reference,
                            load(options, source, model::KernelChoice::kReference, num_rows));
    reference->set_tap([&](TapPlace, std::int32_t, std::span<float> values) {
      wanted.emplace_back(values.begin(), values.end());
    });
    NIBBLE_RETURN_IF_ERROR(reference->forward(plan, logits));
    progress(1, 2);
  }
  NIBBLE_ASSIGN_OR_RETURN(const std::unique_ptr<Model> tested,
                          load(options, source, device.kernels, num_rows));
  tested->set_tap([&](TapPlace place, std::int32_t layer, std::span<float> values) {
    const std::vector<float>& reference = wanted[report.rows.size()];
    VerifyRow row = compare(values, reference, num_rows, report.bound);
    row.layer = layer;
    row.block = block_name(place);
    report.rows.push_back(std::move(row));
    // The next block starts from the reference's values, so that each is judged alone.
    std::copy(reference.begin(), reference.end(), values.begin());
  });
  NIBBLE_RETURN_IF_ERROR(tested->forward(plan, logits));
  progress(2, 2);
  report.is_ok = std::all_of(report.rows.begin(), report.rows.end(),
                             [](const VerifyRow& row) { return row.is_within_bound; });
  return report;
}

}  // namespace nibble::commands
