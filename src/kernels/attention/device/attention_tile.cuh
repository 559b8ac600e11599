// Sixteen queries of one kv head against segments of 64 keys, by one warp, without shared memory.
//
// Query r of a tile is head r % group of token r / group. Cache lines go from memory to fragments
// in 16-byte pieces, because sums do not care which element is which as long as both operands
// agree:
//
//   scores   q (16 x 64) . k^T: lane (g, t) holds channels 8t .. 8t + 7 of each half of 32, of
//            queries g and g + 8, and of keys g of eight keys at a time
//   values   p (16 x 64 keys) . v: the accumulators of the scores are already fragments of p; the
//            lane's column g of output tile j is channel 8g + j, so it takes channels 8g .. 8g + 7
//            of keys 2t, 2t + 1, 2t + 8, 2t + 9 and pairs neighbouring keys
//
// Scores are kept in units of log 2. Weights are rounded to bf16 for the product, and the rounded
// ones are summed.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/attention/device/attention_cache.cuh"
#include "kernels/attention/device/attention_params.cuh"
#include "kernels/common/ptx_mma.cuh"

namespace nibble::kernels::device {

inline constexpr int kTileQueries = 16;
inline constexpr int kSegmentKeys = 64;
inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr float kNoScore = -1e30F;  // of a key that is not seen: finite, so differences are

// Of query g (index 0) and g + 8 (index 1) of a lane.
struct TileState {
  float largest[2] = {kNoScore, kNoScore};
  float total[2] = {};    // over the lane's keys only, until finished
  float sums[8][4] = {};  // [output tile]: columns 2t, 2t + 1 of query g, then of g + 8
};

struct TileQueries {
  std::uint32_t a[4][4];  // fragments of the four steps over 64 channels
  int position[2];        // of query g and g + 8; below 0: no such query
};

// Queries of tokens [token, ...) of a sequence; those beyond its rows are empty.
__device__ __forceinline__ TileQueries load_queries(const AttentionParams& params,
                                                    const SequenceRange& sequence, int kv_head,
                                                    int token) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int group = params.num_heads / params.num_kv_heads;
  TileQueries out;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = lane / 4 + 8 * half;
    const int row = token + query / group;
    const bool is_there = row < sequence.num_rows;
    out.position[half] = is_there ? sequence.first_position + row : -1;
    const __nv_bfloat16* from =
        static_cast<const __nv_bfloat16*>(params.q) +
        (std::int64_t{sequence.first_row + (is_there ? row : 0)} * params.num_heads +
         kv_head * group + query % group) *
            kTileHeadDim +
        8 * (lane % 4);
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const uint4 q = is_there ? load_16(from + 32 * block) : make_uint4(0, 0, 0, 0);
      out.a[2 * block][half] = q.x;
      out.a[2 * block][half + 2] = q.y;
      out.a[2 * block + 1][half] = q.z;
      out.a[2 * block + 1][half + 2] = q.w;
    }
  }
  return out;
}

// Where the segment's keys lie, in rows: a segment never crosses a page.
__device__ __forceinline__ std::int64_t segment_at(const AttentionParams& params,
                                                   const SequenceRange& sequence, int kv_head,
                                                   int segment_key) {
  const std::int64_t page = sequence.pages[segment_key / params.page_size - sequence.first_page];
  return (page * params.num_kv_heads + kv_head) * params.page_size + segment_key % params.page_size;
}

// Scores of 64 keys: tile j holds keys 8j + 2t, 8j + 2t + 1.
template <typename Kv>
__device__ __forceinline__ void score_segment(const TileQueries& queries, const CacheRows<Kv>& keys,
                                              float (&scores)[8][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const uint4 k = keys.load(lane / 4 + 8 * j, 8 * (lane % 4) + 32 * block);
      mma_m16n8k16_bf16(scores[j], queries.a[2 * block], k.x, k.y);
      mma_m16n8k16_bf16(scores[j], queries.a[2 * block + 1], k.z, k.w);
    }
  }
}

__device__ __forceinline__ bool sees(const AttentionParams& params, int position, int key) {
  return key <= position && key >= first_key(params, position);
}

// Scores to weights, and the state's maximum and totals moved along. Quads of lanes share a query.
__device__ __forceinline__ void weigh_segment(const AttentionParams& params,
                                              const TileQueries& queries, int segment_key,
                                              bool is_whole, float (&scores)[8][4],
                                              TileState& state) {
  const int t = static_cast<int>(threadIdx.x % 4);
  const float factor = params.scale * kLog2E;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = state.largest[half];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = scores[j][2 * half + i];
        const int key = segment_key + 8 * j + 2 * t + i;
        score = is_whole || sees(params, queries.position[half], key) ? score * factor : kNoScore;
        largest = fmaxf(largest, score);  // drops a NaN, whose weight is NaN all the same
      }
    }
    float other = __shfl_xor_sync(0xFFFFFFFFU, largest, 1);
    largest = fmaxf(largest, other);
    other = __shfl_xor_sync(0xFFFFFFFFU, largest, 2);
    largest = fmaxf(largest, other);
    const float correction = exp2f(state.largest[half] - largest);
    state.largest[half] = largest;
    state.total[half] *= correction;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      state.sums[j][2 * half] *= correction;
      state.sums[j][2 * half + 1] *= correction;
      float& first = scores[j][2 * half];
      float& second = scores[j][2 * half + 1];
      first = first == kNoScore ? 0.0F : exp2f(first - largest);
      second = second == kNoScore ? 0.0F : exp2f(second - largest);
    }
  }
}

// Neighbouring keys' values of the same channel: word i holds channels 2i and 2i + 1 of a key.
__device__ __forceinline__ void add_values(const std::uint32_t (&p)[4], const uint4 (&v)[4],
                                           TileState& state) {
  const std::uint32_t words[4][4] = {{v[0].x, v[0].y, v[0].z, v[0].w},
                                     {v[1].x, v[1].y, v[1].z, v[1].w},
                                     {v[2].x, v[2].y, v[2].z, v[2].w},
                                     {v[3].x, v[3].y, v[3].z, v[3].w}};
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const std::uint32_t select = j % 2 == 0 ? 0x5410U : 0x7632U;
    mma_m16n8k16_bf16(state.sums[j], p, __byte_perm(words[0][j / 2], words[1][j / 2], select),
                      __byte_perm(words[2][j / 2], words[3][j / 2], select));
  }
}

__device__ __forceinline__ float pair_sum(std::uint32_t pair) {
  return __uint_as_float(pair << 16U) + __uint_as_float(pair & 0xFFFF0000U);
}

// A segment's values and the keys of it that exist for any query, [begin, end): the others are not
// read, since nothing says what lies there.
template <typename Kv>
struct SegmentValues {
  CacheRows<Kv> rows;
  int segment_key;
  int begin;
  int end;
};

// Of the 16 keys of a step: keys 2t, 2t + 1, 2t + 8, 2t + 9.
template <typename Kv>
__device__ __forceinline__ void load_values(const SegmentValues<Kv>& values, int step,
                                            uint4 (&v)[4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = 16 * step + 2 * (lane % 4) + i % 2 + i / 2 * 8;
    const bool is_there =
        values.segment_key + key >= values.begin && values.segment_key + key < values.end;
    v[i] = is_there ? values.rows.load(key, 8 * (lane / 4)) : make_uint4(0, 0, 0, 0);
  }
}

__device__ __forceinline__ void add_step(const float (&scores)[8][4], int step, const uint4 (&v)[4],
                                         TileState& state) {
  const auto& low = scores[2 * step];
  const auto& high = scores[2 * step + 1];
  const std::uint32_t p[4] = {cvt_bf16x2(low[0], low[1]), cvt_bf16x2(low[2], low[3]),
                              cvt_bf16x2(high[0], high[1]), cvt_bf16x2(high[2], high[3])};
  state.total[0] += pair_sum(p[0]) + pair_sum(p[2]);
  state.total[1] += pair_sum(p[1]) + pair_sum(p[3]);
  add_values(p, v, state);
}

// Keys [begin, end) that some query of the tile sees; whole: every query sees all 64.
struct SeenKeys {
  int begin;
  int end;
  bool is_whole;
};

// Folds the segment that begins at `segment_key` into the state; its rows may lie in any memory.
// Asking for the values before the scores are known costs registers and was slower for one row (8.8
// us against 8.5 at 1,024 keys) and for many (510 us against 473 for 64 rows at 8,192; bench_cuda,
// H200).
template <typename Kv>
__device__ __forceinline__ void attend_segment(const AttentionParams& params,
                                               const TileQueries& queries,
                                               const CacheRows<Kv>& keys,
                                               const CacheRows<Kv>& value_rows, int segment_key,
                                               const SeenKeys& seen, TileState& state) {
  const SegmentValues<Kv> values{value_rows, segment_key, seen.begin, seen.end};
  float scores[8][4] = {};
  score_segment<Kv>(queries, keys, scores);
  weigh_segment(params, queries, segment_key, seen.is_whole, scores, state);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    uint4 v[4];
    load_values<Kv>(values, step, v);
    add_step(scores, step, v, state);
  }
}

// The lanes of a quad hold parts of a query's total.
__device__ __forceinline__ void finish_totals(TileState& state) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    state.total[half] += __shfl_xor_sync(0xFFFFFFFFU, state.total[half], 1);
    state.total[half] += __shfl_xor_sync(0xFFFFFFFFU, state.total[half], 2);
  }
}

// What the sums are multiplied with, once the sink has its share.
__device__ __forceinline__ float final_factor(const float* sinks, int head, float largest,
                                              float total) {
  if (sinks == nullptr) {
    return 1.0F / total;
  }
  const float sink = sinks[head] * kLog2E;
  const float most = fmaxf(largest, sink);
  const float correction = exp2f(largest - most);
  return correction / (total * correction + exp2f(sink - most));
}

}  // namespace nibble::kernels::device
