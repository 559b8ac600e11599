// Launches of the tensor-core kernels: bf16 queries, heads of 64 channels, a cache of bf16 or e4m3.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/attention/attention_launch.cuh"
#include "kernels/attention/device/attention_decode.cuh"
#include "kernels/attention/device/attention_prefill.cuh"
#include "kernels/attention/device/attention_stream.cuh"

namespace nibble::kernels {

static_assert(kGpuChunkKeys == device::kChunkKeys);
static_assert(kGpuPartialBytes == sizeof(float) * device::kPartialFloats);

inline std::int32_t group_of(const AttentionArgs& args) {
  return args.num_heads / args.num_kv_heads;
}

// Full layers take long steps; a window of 128 is hardly more than two short ones. Codes take
// registers on their way, which long steps do not leave.
template <typename Kv>
struct PrefillConfigs {
  using Full = device::PrefillConfig<128, 5, 1, false>;
  using Window = device::PrefillConfig<64, 8, 3, true>;
};
template <>
struct PrefillConfigs<device::E4m3> {
  using Full = device::PrefillConfig<64, 8, 0, false, device::E4m3>;
  using Window = device::PrefillConfig<64, 8, 0, true, device::E4m3>;
};

// Tiles of the prompts among `sequences`.
inline std::int64_t prefill_tiles(const AttentionArgs& args,
                                  std::span<const AttentionSequence> sequences,
                                  std::int64_t tokens) {
  std::int64_t tiles = 0;
  for (const AttentionSequence& sequence : sequences) {
    tiles += sequence.num_rows > 1 ? ceil_div(sequence.num_rows, tokens) * args.num_kv_heads : 0;
  }
  return tiles;
}

// Sequences of several rows, kMostPrefillSequences of all at a time.
template <typename Config>
Status launch_prefill(const AttentionArgs& args, const AttentionCudaPlan& plan, const Exec& exec) {
  constexpr std::size_t kShared = sizeof(device::PrefillShared<Config>);
  static const Status kAllowed =
      allow_shared_bytes("attention_prefill", device::attention_prefill<Config>, kShared);
  NIBBLE_RETURN_IF_ERROR(Status(kAllowed));
  const std::size_t count = args.sequences.size();
  for (std::size_t first = 0; first < count; first += device::kMostPrefillSequences) {
    device::AttentionParams params = attention_params(args, plan);
    params.sequences += first;
    const auto wave = args.sequences.subspan(
        first, std::min<std::size_t>(count - first, device::kMostPrefillSequences));
    const std::int64_t tiles = prefill_tiles(args, wave, Config::kTileQueries / group_of(args));
    const LaunchShape shape{
        .grid = dim3(static_cast<unsigned>(std::min<std::int64_t>(tiles, exec.device->num_sms))),
        .block = dim3(Config::kThreads),
        .shared_bytes = kShared,
        .is_dependent = true};
    NIBBLE_RETURN_IF_ERROR(launch("attention_prefill", device::attention_prefill<Config>, shape,
                                  exec, params, static_cast<int>(wave.size())));
  }
  return {};
}

using Kernel = void (*)(device::AttentionParams);

template <typename Kv, int kAtOnce>
Kernel decode_kernel(std::int32_t group) {
  return group > 8 ? device::attention_decode<Kv, 16, kAtOnce>
                   : device::attention_decode<Kv, 8, kAtOnce>;
}

// Sequences of one row, `plan.wave` at a time.
template <typename Kv>
Status launch_decode(const AttentionArgs& args, const AttentionCudaPlan& plan, const Exec& exec) {
  const Kernel kernel = plan.chunks_per_block == 2 ? decode_kernel<Kv, 2>(group_of(args))
                                                   : decode_kernel<Kv, 1>(group_of(args));
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
      NIBBLE_RETURN_IF_ERROR(launch("attention_fold", device::attention_fold<device::kTileHeadDim>,
                                    fold, exec, params));
    }
  }
  return {};
}

template <int kQueries>
Status launch_stream(const AttentionArgs& args, const AttentionCudaPlan& plan, const Exec& exec) {
  constexpr std::size_t kShared = sizeof(device::StreamShared);
  static const Status kAllowed =
      allow_shared_bytes("attention_stream", device::attention_stream<kQueries>, kShared);
  NIBBLE_RETURN_IF_ERROR(Status(kAllowed));
  const int items = static_cast<int>(args.sequences.size()) * args.num_kv_heads;
  const int blocks = exec.device->num_sms * device::AttentionStream::kBlocks;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(std::min(items, blocks))),
                          .block = dim3(device::AttentionStream::kThreads),
                          .shared_bytes = kShared,
                          .is_dependent = true};
  return launch("attention_stream", device::attention_stream<kQueries>, shape, exec,
                attention_params(args, plan), items);
}

// Sequences of one row. The ring holds bf16 alone.
template <typename Kv>
Status launch_one_row(const AttentionArgs& args, const AttentionCudaPlan& plan, const Exec& exec) {
  if constexpr (std::is_same_v<Kv, __nv_bfloat16>) {
    if (is_streamed(plan, args.num_kv_heads, exec.device->num_sms)) {
      return group_of(args) > 8 ? launch_stream<16>(args, plan, exec)
                                : launch_stream<8>(args, plan, exec);
    }
  }
  return launch_decode<Kv>(args, plan, exec);
}

template <typename Kv>
Status launch_d64(const AttentionArgs& args, const Exec& exec) {
  using Configs = PrefillConfigs<Kv>;
  const AttentionCudaPlan plan = plan_attention_cuda(args);
  if (plan.prefill_rows > 0) {
    NIBBLE_RETURN_IF_ERROR(args.window == 0
                               ? launch_prefill<typename Configs::Full>(args, plan, exec)
                               : launch_prefill<typename Configs::Window>(args, plan, exec));
  }
  return plan.decode_sequences > 0 ? launch_one_row<Kv>(args, plan, exec) : Status();
}

inline bool fits_d64(const AttentionArgs& args) {
  const std::int32_t group = group_of(args);
  return args.q_dtype == DType::kBF16 && args.head_dim == device::kTileHeadDim &&
         group <= device::kTileQueries && (group & (group - 1)) == 0 &&
         args.page_size % device::kSegmentKeys == 0 && args.scale > 0.0F &&
         args.sequences.size() <= 65535;
}

}  // namespace nibble::kernels
