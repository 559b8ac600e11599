#include "kernels/sample/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "kernels/sample/row.h"

namespace nibble::kernels {
namespace {

Status check_ids(const SampleArgs& args) {
  const auto vocab = static_cast<std::int64_t>(args.logits.size());
  for (const LogitBias& entry : args.logit_bias) {
    if (entry.id < 0 || entry.id >= vocab) {
      return error(Code::kInvalidArgument, "logit_bias: want ids in 0..{}, got {}", vocab - 1,
                   entry.id);
    }
  }
  for (const TokenCount& entry : args.counts) {
    if (entry.id < 0 || entry.id >= vocab) {
      return error(Code::kInvalidArgument, "token counts: want ids in 0..{}, got {}", vocab - 1,
                   entry.id);
    }
  }
  return {};
}

void adjust(const SampleArgs& args) {
  for (const TokenCount& seen : args.counts) {
    float& logit = args.logits[static_cast<std::size_t>(seen.id)];
    logit = logit > 0.0F ? logit / args.repetition_penalty : logit * args.repetition_penalty;
    if (seen.in_output > 0) {
      logit -= args.presence_penalty + args.frequency_penalty * static_cast<float>(seen.in_output);
    }
  }
  for (const LogitBias& entry : args.logit_bias) {
    args.logits[static_cast<std::size_t>(entry.id)] += entry.bias;
  }
}

// The candidates that survive the filters, as weights by id; the others are 0.
class Candidates {
 public:
  Candidates(const SampleArgs& args, float largest_logit) : args_(args) {
    row_weights(args.logits, largest_logit, args.temperature, args.scratch);
  }

  void keep_top_k() {
    const auto vocab = static_cast<std::int32_t>(args_.logits.size());
    if (args_.top_k <= 0 || args_.top_k >= vocab) {
      return;
    }
    sort_prefix(args_.top_k);
    drop_from(args_.top_k);
  }

  // Sorts a growing prefix: real distributions reach p within a few hundred of 200,000 tokens.
  void keep_top_p() {
    if (args_.top_p >= 1.0F) {
      return;
    }
    const double wanted = args_.top_p * row_sum(weights());
    const auto vocab = static_cast<std::int32_t>(args_.logits.size());
    for (std::int32_t length = std::min(256, vocab);; length = std::min(length * 8, vocab)) {
      sort_prefix(length);
      double sum = 0.0;
      for (std::int32_t i = 0; i < length; ++i) {
        sum += weight(args_.order[static_cast<std::size_t>(i)]);
        if (sum >= wanted) {
          drop_from(i + 1);
          return;
        }
      }
      if (length == vocab) {
        return;
      }
    }
  }

  void keep_min_p() {
    if (args_.min_p <= 0.0F) {
      return;
    }
    for (float& weight : weights()) {
      weight = weight >= args_.min_p ? weight : 0.0F;  // the largest weight is 1
    }
  }

  std::int32_t draw() const {
    return row_first_above(weights(), uniform(args_.seed, args_.counter) * row_sum(weights()));
  }

 private:
  float weight(std::int32_t id) const { return args_.scratch[static_cast<std::size_t>(id)]; }

  std::span<float> weights() const { return args_.scratch.first(args_.logits.size()); }

  // The `length` heaviest ids, in order, at the front of `order`.
  void sort_prefix(std::int32_t length) {
    const auto ids = args_.order.first(args_.logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::partial_sort(ids.begin(), ids.begin() + length, ids.end(),
                      [this](std::int32_t a, std::int32_t b) {
                        return weight(a) > weight(b) || (weight(a) == weight(b) && a < b);
                      });
  }

  void drop_from(std::int32_t first) {
    for (const std::int32_t id :
         args_.order.subspan(static_cast<std::size_t>(first),
                             args_.logits.size() - static_cast<std::size_t>(first))) {
      args_.scratch[static_cast<std::size_t>(id)] = 0.0F;
    }
  }

  const SampleArgs& args_;
};

}  // namespace

Result<std::int32_t> sample(const SampleArgs& args) {
  NIBBLE_RETURN_IF_ERROR(check_ids(args));
  adjust(args);
  const std::int32_t best = row_largest(args.logits);
  if (best < 0 || args.logits[static_cast<std::size_t>(best)] == INFINITY) {
    return error(Code::kInternal, "no token can be drawn from {} logits: NaN, +inf or all -inf",
                 args.logits.size());
  }
  if (args.temperature == 0.0F) {
    return best;
  }
  Candidates candidates(args, args.logits[static_cast<std::size_t>(best)]);
  candidates.keep_top_k();
  candidates.keep_top_p();
  candidates.keep_min_p();
  return candidates.draw();
}

Result<double> log_sum_exp(std::span<const float> logits) {
  const std::int32_t best = row_largest(logits);
  if (best < 0 || logits[static_cast<std::size_t>(best)] == INFINITY) {
    return error(Code::kInternal, "no distribution over {} logits: NaN, +inf or all -inf",
                 logits.size());
  }
  const double top = logits[static_cast<std::size_t>(best)];
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(logit - top);
  }
  return top + std::log(sum);
}

}  // namespace nibble::kernels
