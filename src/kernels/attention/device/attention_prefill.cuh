// Sequences of several rows: each warp takes 16 queries through all the keys they see.
#pragma once

#include "kernels/attention/device/attention_tile.cuh"
#include "kernels/common/ptx_grid.cuh"

namespace nibble::kernels::device {

inline constexpr int kPrefillWarps = 4;

__device__ __forceinline__ void store_query(const AttentionParams& params, const TileState& state,
                                            int half, std::int64_t at, float factor) {
  const int t = static_cast<int>(threadIdx.x % 4);
  __nv_bfloat16* to = static_cast<__nv_bfloat16*>(params.out) + at + 16 * t;
#pragma unroll
  for (int part = 0; part < 2; ++part) {  // channels 16t + 8 part .. + 7
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = cvt_bf16x2(state.sums[2 * i][2 * half + part] * factor,
                            state.sums[2 * i + 1][2 * half + part] * factor);
    }
    *reinterpret_cast<uint4*>(to + 8 * part) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

__global__ void __launch_bounds__(32 * kPrefillWarps)
    attention_prefill(const AttentionParams params) {
  griddepcontrol_wait();
  const SequenceRange sequence = params.sequences[blockIdx.z];
  const int group = params.num_heads / params.num_kv_heads;
  const int tokens = kTileQueries / group;
  // The longest rows first: what comes last should be short.
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int token = (block * kPrefillWarps + static_cast<int>(threadIdx.x / 32)) * tokens;
  if (sequence.num_rows <= 1 || token >= sequence.num_rows) {
    return;
  }
  const int kv_head = static_cast<int>(blockIdx.y);
  const TileQueries queries = load_queries(params, sequence, kv_head, token);
  const int first_position = sequence.first_position + token;
  const int last_position = sequence.first_position + min(token + tokens, sequence.num_rows) - 1;
  const bool is_full_tile = token + tokens <= sequence.num_rows;
  const int begin = first_key(params, first_position);
  const int end = last_position + 1;
  TileState state;
  for (int key = begin / kSegmentKeys * kSegmentKeys; key < end; key += kSegmentKeys) {
    const bool is_whole = is_full_tile && key + kSegmentKeys - 1 <= first_position &&
                          key >= first_key(params, last_position);
    attend_segment(params, sequence, kv_head, queries, key, begin, end, is_whole, state);
  }
  finish_totals(state);
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = lane / 4 + 8 * half;
    if (queries.position[half] >= 0) {
      const int head = kv_head * group + query % group;
      const std::int64_t row = sequence.first_row + token + query / group;
      const float factor = final_factor(params.sinks, head, state.largest[half], state.total[half]);
      store_query(params, state, half, (row * params.num_heads + head) * kTileHeadDim, factor);
    }
  }
}

}  // namespace nibble::kernels::device
