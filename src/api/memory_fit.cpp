#include "api/memory_fit.h"

#include <algorithm>

#include "api/activation.h"
#include "api/decode_path.h"
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
// Of a device, beside what a step needs: captured graphs (64 of a few MB), the runtime's own.
constexpr std::int64_t kOtherDeviceBytes = std::int64_t{1} << 29U;

// Window pages that keep prefixes: for this many tokens, or a part of the full group's pages if
// that is more. Window layers then still hold far less than the others.
constexpr std::int32_t kPrefixTokens = 4096;
constexpr std::int32_t kPrefixPart = 4;

constexpr std::int32_t kHostRows = 512;  // of a step on a processor

constexpr std::int64_t kLeastContext = 256;  // less is not worth loading a model for

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
      (options.max_batch_tokens != 0 && !is_within(options.max_batch_tokens, kMostTokens)) ||
      !is_within(options.page_size, kMostTokens) || options.num_threads < 0) {
    return error(Code::kInvalidArgument,
                 "want max_num_seqs of 1 to {}, max_batch_tokens and page_size of 1 to {} and "
                 "threads of at least 0, found {}, {}, {} and {}",
                 kMostSequences, kMostTokens, options.max_num_seqs, options.max_batch_tokens,
                 options.page_size, options.num_threads);
  }
  return {};
}

// Rows of a step where none are asked for. A GPU computes prompts of 512 rows at half the speed of
// some thousand (docs/kernels/README.md): up to 8,192, as long as what they need takes at most a
// quarter of the `left_bytes` beside the weights.
std::int32_t device_rows(const model::ModelConfig& config, model::ModelOptions options,
                         std::int64_t left_bytes) {
  constexpr std::int32_t kMostRows = 8192;
  options.max_position = config.max_position;
  for (std::int32_t rows = kMostRows; rows > kHostRows; rows /= 2) {
    options.max_batch_tokens = rows;
    if (model::device_step_bytes(config, options) <= left_bytes / 4) {
      return rows;
    }
  }
  return kHostRows;
}

// Pages that fit in what is left for the cache.
class CacheRoom {
 public:
  CacheRoom(const model::ModelConfig& config, const EnginePlan& plan, bool keeps_prefixes,
            std::int64_t cache_bytes)
      : full_bytes_(page_bytes(config, plan.model, CacheGroup::kFull)),
        window_bytes_(page_bytes(config, plan.model, CacheGroup::kWindow)),
        page_size_(plan.model.page_size),
        keeps_prefixes_(keeps_prefixes),
        bytes_(std::max<std::int64_t>(
            0, cache_bytes - engine::window_pages(plan.limits) * window_bytes_)) {}

  // Of the full group; `beside_prefixes`: when their part of the window group is taken as well.
  std::int64_t num_full(bool beside_prefixes) const {
    const std::int64_t prefix_bytes =
        beside_prefixes && keeps_prefixes_ ? window_bytes_ / kPrefixPart : 0;
    return full_bytes_ == 0 ? kMostPages
                            : std::min(kMostPages, bytes_ / (full_bytes_ + prefix_bytes));
  }

  // Of the window group, beside `num_full` of the full group and beyond what sequences need at
  // once.
  std::int32_t num_prefix(std::int32_t num_full) const {
    if (!keeps_prefixes_ || window_bytes_ == 0) {
      return 0;
    }
    const std::int32_t wanted =
        std::max(pages_for(kPrefixTokens, page_size_), num_full / kPrefixPart);
    const std::int64_t left = (bytes_ - num_full * full_bytes_) / window_bytes_;
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(left, 0, std::min(wanted, num_full)));
  }

 private:
  static constexpr std::int64_t kMostPages = std::int64_t{1} << 30U;

  std::int64_t full_bytes_;
  std::int64_t window_bytes_;
  std::int32_t page_size_;
  bool keeps_prefixes_;
  std::int64_t bytes_;
};

}  // namespace

Result<EnginePlan> plan_engine(const EngineOptions& options, const model::ModelConfig& config,
                               std::int64_t file_bytes, std::int64_t available_bytes,
                               MemoryOf memory) {
  NIBBLE_RETURN_IF_ERROR(check(options, config));
  const DType activation = stored_dtype(options.activation);
  EnginePlan plan;
  plan.model = {.activation = activation,
                .kv_dtype = cache_dtype(options.activation, options.kv_cache),
                .int8_experts = options.activation == Activation::kInt8,
                .kernels = options.use_reference_kernels ? model::KernelChoice::kReference
                                                         : model::KernelChoice::kCpu,
                .decode = model_decode_path(options.decode_path),
                .num_threads = options.num_threads,
                .max_batch_tokens = options.max_batch_tokens,
                .max_logit_rows = std::max(kLogitRows, options.max_num_seqs),
                .page_size = options.page_size};
  if (options.max_batch_tokens == 0) {
    plan.model.max_batch_tokens =
        memory == MemoryOf::kDevice
            ? device_rows(config, plan.model, available_bytes - file_bytes - kOtherDeviceBytes)
            : kHostRows;
  }
  plan.limits = {.max_num_seqs = options.max_num_seqs,
                 .max_batch_tokens = plan.model.max_batch_tokens,
                 .max_logit_rows = plan.model.max_logit_rows,
                 .page_size = options.page_size,
                 .window = config.window,
                 .shares_prefixes = options.enable_prefix_caching};
  plan.memory = {.weight_bytes = file_bytes, .reserve_bytes = kOtherBytes};
  if (memory == MemoryOf::kDevice) {
    model::ModelOptions longest = plan.model;
    longest.max_position = config.max_position;
    plan.memory.step_bytes = model::device_step_bytes(config, longest);
    plan.memory.reserve_bytes = kOtherDeviceBytes;
  }
  const std::int64_t room_bytes = available_bytes - plan.memory.total_bytes();
  const CacheRoom room(config, plan, options.enable_prefix_caching, room_bytes);
  const bool is_automatic = options.max_model_len == 0;
  const std::int64_t fitting = room.num_full(is_automatic) * options.page_size;
  const std::int64_t wanted = is_automatic ? config.max_position : options.max_model_len;
  const std::int64_t least = is_automatic ? std::min(kLeastContext, wanted) : wanted;
  if (fitting < least) {
    return error(Code::kExhausted,
                 "a context of {} tokens does not fit: {:.0f} MiB available, {:.0f} MiB of "
                 "weights, room for {} tokens; lower --max-model-len",
                 wanted, static_cast<double>(available_bytes) / kMiB,
                 static_cast<double>(file_bytes) / kMiB, fitting);
  }
  plan.model.max_position = static_cast<std::int32_t>(std::min(wanted, fitting));
  // One sequence of full length at least, all of them at most: they share what there is.
  const std::int64_t pages = pages_for(plan.model.max_position, options.page_size);
  plan.model.num_pages[0] = static_cast<std::int32_t>(
      std::clamp(room.num_full(true), pages, pages * options.max_num_seqs));
  plan.model.num_pages[1] =
      engine::window_pages(plan.limits) + room.num_prefix(plan.model.num_pages[0]);
  std::copy_n(plan.model.num_pages, model::kNumCacheGroups, plan.limits.num_pages);
  for (const CacheGroup group : {CacheGroup::kFull, CacheGroup::kWindow}) {
    plan.memory.cache_bytes +=
        plan.model.num_pages[static_cast<int>(group)] * page_bytes(config, plan.model, group);
  }
  return plan;
}

}  // namespace nibble
