#include <algorithm>

#include "kernels/attention/attention_launch.cuh"
#include "kernels/attention/device/attention_decode.cuh"
#include "kernels/attention/device/attention_prefill.cuh"

namespace nibble::kernels {
namespace {

static_assert(kGpuChunkKeys == device::kChunkKeys);
static_assert(kGpuPartialBytes == sizeof(float) * device::kPartialFloats);

std::int32_t group_of(const AttentionArgs& args) { return args.num_heads / args.num_kv_heads; }

Status launch_prefill(const AttentionArgs& args, const AttentionCudaPlan& plan, const Exec& exec) {
  const std::int64_t tokens = device::kPrefillWarps * device::kTileQueries / group_of(args);
  const LaunchShape shape{
      .grid = dim3(ceil_div(plan.prefill_rows, tokens), static_cast<unsigned>(args.num_kv_heads),
                   static_cast<unsigned>(args.sequences.size())),
      .block = dim3(32 * device::kPrefillWarps),
      .is_dependent = true};
  return launch("attention_prefill", device::attention_prefill, shape, exec,
                attention_params(args, plan));
}

using Kernel = void (*)(device::AttentionParams);

template <int kAtOnce>
Kernel decode_kernel(std::int32_t group) {
  return group > 8 ? device::attention_decode<16, kAtOnce> : device::attention_decode<8, kAtOnce>;
}

// Sequences of one row, `plan.wave` at a time.
Status launch_decode(const AttentionArgs& args, const AttentionCudaPlan& plan, const Exec& exec) {
  const Kernel kernel = plan.chunks_per_block == 2 ? decode_kernel<2>(group_of(args))
                                                   : decode_kernel<1>(group_of(args));
  const auto count = static_cast<std::int32_t>(args.sequences.size());
  for (std::int32_t first = 0; first < count; first += plan.wave) {
    device::AttentionParams params = attention_params(args, plan);
    params.sequences += first;
    const auto wave = static_cast<unsigned>(std::min(plan.wave, count - first));
    const LaunchShape shape{
        .grid = dim3(ceil_div(plan.max_chunks, plan.chunks_per_block),
                     static_cast<unsigned>(args.num_kv_heads), wave),
        .block = dim3(static_cast<unsigned>(32 * device::kDecodeWarps * plan.chunks_per_block)),
        .is_dependent = true};
    NIBBLE_RETURN_IF_ERROR(launch("attention_decode", kernel, shape, exec, params));
    if (plan.chunks_per_block < plan.max_chunks) {
      const LaunchShape fold{.grid = dim3(static_cast<unsigned>(args.num_heads), wave),
                             .block = dim3(device::kTileHeadDim),
                             .is_dependent = true};
      NIBBLE_RETURN_IF_ERROR(launch("attention_fold", device::attention_fold, fold, exec, params));
    }
  }
  return {};
}

Status run(const AttentionArgs& args, const Exec& exec) {
  const AttentionCudaPlan plan = plan_attention_cuda(args);
  if (plan.prefill_rows > 0) {
    NIBBLE_RETURN_IF_ERROR(launch_prefill(args, plan, exec));
  }
  return plan.decode_sequences > 0 ? launch_decode(args, plan, exec) : Status();
}

bool fits(const AttentionArgs& args) {
  const std::int32_t group = group_of(args);
  return args.q_dtype == DType::kBF16 && args.kv_dtype == DType::kBF16 &&
         args.head_dim == device::kTileHeadDim && group <= device::kTileQueries &&
         (group & (group - 1)) == 0 && args.page_size % device::kSegmentKeys == 0 &&
         args.sequences.size() <= 65535;
}

}  // namespace

extern constinit const Instance<AttentionArgs> attention_bf16_d64_sm90{
    .info = {.name = "attention_bf16_d64_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &fits,
    .run = &run,
};

}  // namespace nibble::kernels
