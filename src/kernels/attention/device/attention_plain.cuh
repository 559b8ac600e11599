// Attention in float32 arithmetic for every head_dim and dtype: a warp for each row and head. Keys
// are taken 32 at a time, one a lane, and then their values channel by channel. A row's scale, of
// e4m3 alone, is applied to its score and to its weight: a power of two, so exactly.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/attention/device/attention_cache.cuh"
#include "kernels/attention/device/attention_params.cuh"
#include "kernels/common/element.cuh"
#include "kernels/common/ptx_grid.cuh"

namespace nibble::kernels::device {

inline constexpr int kPlainAttentionWarps = 4;
inline constexpr int kMostHeadDim = 256;
inline constexpr int kChannelsPerLane = kMostHeadDim / 32;

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
  }
  return value;
}

__device__ __forceinline__ std::int64_t cache_row(const AttentionParams& params,
                                                  const SequenceRange& sequence, int kv_head,
                                                  int key) {
  const std::int64_t page = sequence.pages[key / params.page_size - sequence.first_page];
  return (page * params.num_kv_heads + kv_head) * params.page_size + key % params.page_size;
}

template <typename Kv>
__device__ __forceinline__ float row_scale(const std::uint8_t* scales, std::int64_t row) {
  if constexpr (std::is_same_v<Kv, E4m3>) {
    return formats::ue8m0_to_f32(scales[row]);
  }
  return 1.0F;
}

template <typename Q, typename Kv>
__device__ __forceinline__ float score_key(const AttentionParams& params, const Q* q,
                                           const Kv* key) {
  float score = 0.0F;
  for (int j = 0; j < params.head_dim; ++j) {
    score += load_f32(q + j) * load_f32(key + j);
  }
  return score * params.scale;
}

template <typename Q, typename Kv>
__global__ void __launch_bounds__(32 * kPlainAttentionWarps)
    attention_plain(const AttentionParams params) {
  griddepcontrol_wait();
  const SequenceRange sequence = params.sequences[blockIdx.z];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row = static_cast<int>(blockIdx.x * kPlainAttentionWarps + threadIdx.x / 32);
  if (row >= sequence.num_rows) {
    return;
  }
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (params.num_heads / params.num_kv_heads);
  const int position = sequence.first_position + row;
  const std::int64_t at =
      (std::int64_t{sequence.first_row + row} * params.num_heads + head) * params.head_dim;
  const Q* q = static_cast<const Q*>(params.q) + at;
  const Kv* k_cache = static_cast<const Kv*>(params.k_cache);
  const Kv* v_cache = static_cast<const Kv*>(params.v_cache);
  const float infinity = __int_as_float(0x7F800000);
  float largest = params.sinks == nullptr ? -infinity : params.sinks[head];
  float total = params.sinks == nullptr ? 0.0F : 1.0F;
  float sums[kChannelsPerLane] = {};
  for (int base = first_key(params, position); base <= position; base += 32) {
    const int key = base + lane;
    float score = -infinity;
    std::int64_t from = 0;
    float value_scale = 1.0F;
    if (key <= position) {
      const std::int64_t there = cache_row(params, sequence, kv_head, key);
      from = there * params.head_dim;
      score = score_key(params, q, k_cache + from) * row_scale<Kv>(params.k_scales, there);
      value_scale = row_scale<Kv>(params.v_scales, there);
    }
    const float next = fmaxf(largest, warp_max(score));
    const float correction = expf(largest - next);
    const float weight = key <= position ? expf(score - next) : 0.0F;
    total = total * correction + warp_sum(weight);
    largest = next;
#pragma unroll
    for (int i = 0; i < kChannelsPerLane; ++i) {
      sums[i] *= correction;
    }
    const int count = min(32, position - base + 1);
    for (int other = 0; other < count; ++other) {
      const float w = __shfl_sync(0xFFFFFFFFU, weight * value_scale, other);
      const std::int64_t there = __shfl_sync(0xFFFFFFFFU, from, other);
#pragma unroll
      for (int i = 0; i < kChannelsPerLane; ++i) {
        if (lane + 32 * i < params.head_dim) {
          sums[i] += w * load_f32(v_cache + there + lane + 32 * i);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kChannelsPerLane; ++i) {
    if (lane + 32 * i < params.head_dim) {
      store_f32(static_cast<Q*>(params.out) + at + lane + 32 * i, sums[i] / total);
    }
  }
}

}  // namespace nibble::kernels::device
