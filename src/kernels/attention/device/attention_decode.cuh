// Sequences of one row: keys are cut into chunks of 256 at multiples of 256, a warp takes 64 of
// them; warps are folded in order, chunks are folded in order, so the bits depend on the position
// alone and not on how many blocks share a sequence.
//
//   partial of (sequence, head, chunk): [2 + 64] floats: maximum, total, sums by channel
#pragma once

#include "kernels/attention/device/attention_tile.cuh"
#include "kernels/common/ptx_grid.cuh"

namespace nibble::kernels::device {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kChunkKeys = kDecodeWarps * kSegmentKeys;
inline constexpr int kPartialFloats = 2 + kTileHeadDim;

// A query's result over some keys; one thread holds one channel.
struct Folded {
  float largest = kNoScore;
  float total = 0.0F;
  float sum = 0.0F;

  // Folding nothing changes no bit. Roundings are spelled out: kernels that fold in the same order
  // get the same bits, whatever the compiler would contract.
  __device__ void add(float next_largest, float next_total, float next_sum) {
    const float most = fmaxf(largest, next_largest);
    const float mine = exp2f(largest - most);
    const float other = exp2f(next_largest - most);
    largest = most;
    total = __fmaf_rn(total, mine, __fmul_rn(next_total, other));
    sum = __fmaf_rn(sum, mine, __fmul_rn(next_sum, other));
  }
};

// kAtOnce: chunks of a block, one for each four warps.
template <int kAtOnce>
struct DecodeShared {
  float largest[kAtOnce * kDecodeWarps][kTileQueries];
  float total[kAtOnce * kDecodeWarps][kTileQueries];
  float sums[kAtOnce * kDecodeWarps][kTileQueries][kTileHeadDim];
};

template <int kAtOnce>
__device__ __forceinline__ void share_state(const TileState& state, DecodeShared<kAtOnce>& shared) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = lane / 4 + 8 * half;
    if (t == 0) {
      shared.largest[warp][query] = state.largest[half];
      shared.total[warp][query] = state.total[half];
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      shared.sums[warp][query][16 * t + j] = state.sums[j][2 * half];
      shared.sums[warp][query][16 * t + 8 + j] = state.sums[j][2 * half + 1];
    }
  }
}

struct ChunkRange {
  int first;  // of the sequence
  int count;
};

__device__ __forceinline__ ChunkRange sequence_chunks(const AttentionParams& params, int position) {
  const int first = first_key(params, position) / kChunkKeys;
  return {first, position / kChunkKeys - first + 1};
}

// Query of thread `threadIdx.x`, pass `i`; its channel is threadIdx.x % 64.
template <int kAtOnce>
__device__ __forceinline__ int folded_query(int i) {
  return static_cast<int>(threadIdx.x) / kTileHeadDim + 2 * kAtOnce * i;
}

// Adds the chunks whose warps' states are shared, in order.
template <int kPasses, int kAtOnce>
__device__ __forceinline__ void fold_shared(const DecodeShared<kAtOnce>& shared,
                                            Folded (&folded)[kPasses]) {
  const int channel = static_cast<int>(threadIdx.x) % kTileHeadDim;
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int query = folded_query<kAtOnce>(i);
    if (query >= kTileQueries) {
      continue;
    }
#pragma unroll
    for (int chunk = 0; chunk < kAtOnce; ++chunk) {
      Folded one;
#pragma unroll
      for (int w = chunk * kDecodeWarps; w < (chunk + 1) * kDecodeWarps; ++w) {
        one.add(shared.largest[w][query], shared.total[w][query], shared.sums[w][query][channel]);
      }
      folded[i].add(one.largest, one.total, one.sum);
    }
  }
}

// Chunks [first, first + count) of at most kAtOnce into `folded`.
template <typename Kv, int kPasses, int kAtOnce>
__device__ __forceinline__ void attend_chunks(const AttentionParams& params,
                                              const SequenceRange& sequence, int kv_head,
                                              ChunkRange chunks, DecodeShared<kAtOnce>& shared,
                                              Folded (&folded)[kPasses]) {
  const int position = sequence.first_position;
  const int begin = first_key(params, position);
  const TileQueries queries = load_queries(params, sequence, kv_head, 0);
  const int key = chunks.first * kChunkKeys + static_cast<int>(threadIdx.x / 32) * kSegmentKeys;
  TileState state;
  if (key <= position && key + kSegmentKeys > begin &&
      key / kChunkKeys < chunks.first + chunks.count) {
    const std::int64_t at = segment_at(params, sequence, kv_head, key);
    attend_segment<Kv>(params, queries, {params.k_cache, params.k_scales, at},
                       {params.v_cache, params.v_scales, at}, key, {begin, position + 1, false},
                       state);
  }
  finish_totals(state);
  share_state<kAtOnce>(state, shared);
  __syncthreads();
  fold_shared<kPasses, kAtOnce>(shared, folded);
}

// A query's result with its share of the sink.
__device__ __forceinline__ void store_folded(const AttentionParams& params,
                                             const SequenceRange& sequence, int head,
                                             const Folded& folded) {
  const int channel = static_cast<int>(threadIdx.x) % kTileHeadDim;
  const float factor = final_factor(params.sinks, head, folded.largest, folded.total);
  static_cast<__nv_bfloat16*>(
      params.out)[(std::int64_t{sequence.first_row} * params.num_heads + head) * kTileHeadDim +
                  channel] = __float2bfloat16_rn(folded.sum * factor);
}

// Kv: __nv_bfloat16 or E4m3. kQueries: at least the heads of a group. kAtOnce is
// params.chunks_per_block.
template <typename Kv, int kQueries, int kAtOnce>
__global__ void __launch_bounds__(32 * kDecodeWarps * kAtOnce)
    attention_decode(const AttentionParams params) {
  static_assert(32 * kDecodeWarps == 2 * kTileHeadDim, "a thread for each channel of two queries");
  constexpr int kPasses = (kQueries + 2 * kAtOnce - 1) / (2 * kAtOnce);
  __shared__ DecodeShared<kAtOnce> shared;
  griddepcontrol_wait();
  const SequenceRange sequence = params.sequences[blockIdx.z];
  if (sequence.num_rows != 1) {
    return;
  }
  const int kv_head = static_cast<int>(blockIdx.y);
  const ChunkRange all = sequence_chunks(params, sequence.first_position);
  const int begin = static_cast<int>(blockIdx.x) * kAtOnce;
  if (begin >= all.count) {
    return;
  }
  Folded folded[kPasses];
  attend_chunks<Kv, kPasses, kAtOnce>(params, sequence, kv_head,
                                      {all.first + begin, min(kAtOnce, all.count - begin)}, shared,
                                      folded);
  griddepcontrol_launch_dependents();
  const int group = params.num_heads / params.num_kv_heads;
  const int channel = static_cast<int>(threadIdx.x) % kTileHeadDim;
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int query = folded_query<kAtOnce>(i);
    if (query >= group) {
      continue;
    }
    const int head = kv_head * group + query;
    if (params.chunks_per_block >= params.max_chunks) {
      store_folded(params, sequence, head, folded[i]);
      continue;
    }
    float* to = params.partials +
                ((std::int64_t{blockIdx.z} * params.num_heads + head) * params.max_chunks + begin) *
                    kPartialFloats;
    to[2 + channel] = folded[i].sum;
    if (channel == 0) {
      to[0] = folded[i].largest;
      to[1] = folded[i].total;
    }
  }
}

// Folds the chunks of each sequence and head; a thread for each channel. Blocks of the kernel
// before took one chunk each.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) attention_fold(const AttentionParams params) {
  static_assert(kThreads == kTileHeadDim, "a thread for each channel");
  griddepcontrol_wait();
  const SequenceRange sequence = params.sequences[blockIdx.y];
  if (sequence.num_rows != 1) {
    return;
  }
  const int head = static_cast<int>(blockIdx.x);
  const int channel = static_cast<int>(threadIdx.x);
  const int count = sequence_chunks(params, sequence.first_position).count;
  const float* from = params.partials + (std::int64_t{blockIdx.y} * params.num_heads + head) *
                                            params.max_chunks * kPartialFloats;
  Folded folded;
#pragma unroll 4
  for (int chunk = 0; chunk < count; ++chunk, from += kPartialFloats) {
    folded.add(from[0], from[1], from[2 + channel]);
  }
  griddepcontrol_launch_dependents();
  store_folded(params, sequence, head, folded);
}

}  // namespace nibble::kernels::device
