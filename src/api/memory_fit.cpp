#include "api/memory_fit.h"

#include <algorithm>

#include "base/error.h"

namespace nibble {
namespace {

using model::CacheGroup;

// Rows of logits in one step: enough for a batch that decodes, few enough that a large vocabulary
// costs little (64 rows of 201,088 are 51 MB).
constexpr std::int32_t kLogitRows = 64;
// Activations of a step, stacks, tokenizer: generously, since it only decides how long a context
// may be.
constexpr std::int64_t kOtherBytes = std::int64_t{1} << 30U;

// Far beyond any use; keeps page counts within 32 bits.
constexpr std::int32_t kMostSequences = 4096;
constexpr std::int32_t kMostTokens = 1 << 16;

constexpr double kMiB = 1024.0 * 1024.0;

std::int32_t pages_for(std::int64_t num_tokens, std::int32_t page_size) {
  return static_cast<std::int32_t>((num_tokens + page_size - 1) / page_size);
}

Status check(const EngineOptions& options, const model::ModelConfig& config) {
  if (options.max_model_len < 0 || options.max_model_len > config.max_position) {
    return error(Code::kInvalidArgument, "max_model_len: want 1 to {}, the model's limit, found {}",
                 config.max_position, options.max_model_len);
  }
  const auto is_within = [](std::int32_t value, std::int32_t most) {
    return value >= 1 && value <= most;
  };
  if (!is_within(options.max_num_seqs, kMostSequences) ||
      !is_within(options.max_batch_tokens, kMostTokens) ||
      !is_within(options.page_size, kMostTokens) || options.num_threads < 0) {
    return error(Code::kInvalidArgument,
                 "want max_num_seqs of 1 to {}, max_batch_tokens and page_size of 1 to {} and "
                 "threads of at least 0, found {}, {}, {} and {}",
                 kMostSequences, kMostTokens, options.max_num_seqs, options.max_batch_tokens,
                 options.page_size, options.num_threads);
  }
  return {};
}

// Largest context whose full-layer pages fit, for every sequence at once.
std::int64_t tokens_that_fit(const EnginePlan& plan, const model::ModelConfig& config,
                             std::int64_t cache_bytes) {
  const std::int64_t window =
      plan.model.num_pages[1] * page_bytes(config, plan.model, CacheGroup::kWindow);
  const std::int64_t page = page_bytes(config, plan.model, CacheGroup::kFull);
  if (page == 0) {
    return config.max_position;
  }
  const std::int64_t pages = (cache_bytes - window) / page / plan.limits.max_num_seqs;
  return std::max<std::int64_t>(0, pages) * plan.model.page_size;
}

}  // namespace

Result<EnginePlan> plan_engine(const EngineOptions& options, const model::ModelConfig& config,
                               std::int64_t file_bytes, std::int64_t available_bytes) {
  NIBBLE_RETURN_IF_ERROR(check(options, config));
  const DType activation = options.activation == Activation::kF32 ? DType::kF32 : DType::kBF16;
  EnginePlan plan;
  plan.model = {.activation = activation,
                .kv_dtype = activation,
                .kernels = options.use_reference_kernels ? model::KernelChoice::kReference
                                                         : model::KernelChoice::kCpu,
                .num_threads = options.num_threads,
                .max_batch_tokens = options.max_batch_tokens,
                .max_logit_rows = std::max(kLogitRows, options.max_num_seqs),
                .page_size = options.page_size};
  plan.limits = {.max_num_seqs = options.max_num_seqs,
                 .max_batch_tokens = options.max_batch_tokens,
                 .max_logit_rows = plan.model.max_logit_rows,
                 .page_size = options.page_size,
                 .window = config.window};
  plan.model.num_pages[1] = engine::window_pages(plan.limits);
  const std::int64_t room = available_bytes - file_bytes - kOtherBytes;
  const std::int64_t fitting = tokens_that_fit(plan, config, room);
  const std::int64_t wanted =
      options.max_model_len > 0 ? options.max_model_len : config.max_position;
  const std::int64_t least =
      options.max_model_len > 0 ? wanted : std::min<std::int64_t>(256, wanted);
  if (fitting < least) {
    return error(
        Code::kExhausted,
        "a context of {} tokens for {} sequences does not fit: {:.0f} MiB available, {:.0f} "
        "MiB of weights, room for {} tokens; lower --max-model-len",
        wanted, options.max_num_seqs, static_cast<double>(available_bytes) / kMiB,
        static_cast<double>(file_bytes) / kMiB, fitting);
  }
  plan.model.max_position = static_cast<std::int32_t>(std::min(wanted, fitting));
  plan.model.num_pages[0] =
      pages_for(plan.model.max_position, options.page_size) * options.max_num_seqs;
  std::copy_n(plan.model.num_pages, model::kNumCacheGroups, plan.limits.num_pages);
  return plan;
}

}  // namespace nibble
