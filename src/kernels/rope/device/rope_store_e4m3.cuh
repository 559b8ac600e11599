// Rotation and a cache of e4m3: a warp takes a head of a row, since a row's codes depend on the
// largest of its channels.
#pragma once

#include <cstdint>

#include "formats/e4m3_row.h"
#include "kernels/rope/device/rope_store.cuh"

namespace nibble::kernels::device {

inline constexpr int kRopeWarps = kRopeThreads / 32;
inline constexpr int kMostHeadPairs = 128;
inline constexpr int kPairsPerLane = kMostHeadPairs / 32;

struct ScaledCaches {
  std::uint8_t* k;
  std::uint8_t* v;
  std::uint8_t* k_scales;
  std::uint8_t* v_scales;
};

// A lane's pairs of a head: channels j and j + head_dim / 2 of j = lane + 32 * i.
struct HeadPairs {
  float low[kPairsPerLane] = {};
  float high[kPairsPerLane] = {};
};

__device__ __forceinline__ HeadPairs turned_pairs(const float* x, int half, const float* inv_freq,
                                                  std::int32_t position, float concentration) {
  HeadPairs out;
#pragma unroll
  for (int i = 0; i < kPairsPerLane; ++i) {
    const int j = static_cast<int>(threadIdx.x % 32) + 32 * i;
    if (j < half) {
      const float low = x[j];
      const float high = x[j + half];
      const Turn turn = turn_of(position, inv_freq[j], concentration);
      out.low[i] = low * turn.cosine - high * turn.sine;
      out.high[i] = high * turn.cosine + low * turn.sine;
    }
  }
  return out;
}

__device__ __forceinline__ HeadPairs plain_pairs(const float* x, int half) {
  HeadPairs out;
#pragma unroll
  for (int i = 0; i < kPairsPerLane; ++i) {
    const int j = static_cast<int>(threadIdx.x % 32) + 32 * i;
    if (j < half) {
      out.low[i] = x[j];
      out.high[i] = x[j + half];
    }
  }
  return out;
}

// The scale of the warp's row, the same in each lane.
__device__ __forceinline__ std::uint8_t scale_of(const HeadPairs& pairs) {
  float amax = 0.0F;
  bool is_finite = true;
#pragma unroll
  for (int i = 0; i < kPairsPerLane; ++i) {
    is_finite = is_finite && isfinite(pairs.low[i]) && isfinite(pairs.high[i]);
    amax = fmaxf(amax, fmaxf(fabsf(pairs.low[i]), fabsf(pairs.high[i])));
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFU, amax, offset));
  }
  return formats::e4m3_row_scale(amax, __all_sync(0xFFFFFFFFU, is_finite) != 0);
}

__device__ __forceinline__ void store_codes(const HeadPairs& pairs, int half, std::int64_t row,
                                            std::uint8_t* cache, std::uint8_t* scales) {
  const std::uint8_t scale = scale_of(pairs);
  std::uint8_t* const to = cache + row * 2 * half;
#pragma unroll
  for (int i = 0; i < kPairsPerLane; ++i) {
    const int j = static_cast<int>(threadIdx.x % 32) + 32 * i;
    if (j < half) {
      to[j] = formats::e4m3_row_code(pairs.low[i], scale);
      to[j + half] = formats::e4m3_row_code(pairs.high[i], scale);
    }
  }
  if (threadIdx.x % 32 == 0) {
    scales[row] = scale;
  }
}

// Block (x, y): row x, heads [y * kRopeWarps, ...) of q, k and v.
template <typename Q>
__global__ void __launch_bounds__(kRopeThreads)
    rope_store_e4m3(const RopeParams<Q, std::uint8_t> params, const ScaledCaches caches) {
  griddepcontrol_wait();
  const int half = params.head_dim / 2;
  const int head = static_cast<int>(blockIdx.y * kRopeWarps + threadIdx.x / 32);
  const int num_all = params.num_heads + 2 * params.num_kv_heads;
  if (head >= num_all) {
    return;
  }
  const std::int64_t row = blockIdx.x;
  const float* x = params.qkv + (row * num_all + head) * params.head_dim;
  const bool is_value = head >= params.num_heads + params.num_kv_heads;
  const HeadPairs pairs = is_value ? plain_pairs(x, half)
                                   : turned_pairs(x, half, params.inv_freq, params.positions[row],
                                                  params.concentration);
  if (head < params.num_heads) {
    Q* const to = params.q_out + (row * params.num_heads + head) * params.head_dim;
#pragma unroll
    for (int i = 0; i < kPairsPerLane; ++i) {
      const int j = static_cast<int>(threadIdx.x % 32) + 32 * i;
      if (j < half) {
        store_pair(to + j, half, pairs.low[i], pairs.high[i]);
      }
    }
    return;
  }
  const std::int64_t slot = params.slots[row];
  if (slot < 0) {
    return;
  }
  const int kv_head = (head - params.num_heads) % params.num_kv_heads;
  const std::int64_t page = slot / params.page_size;
  const std::int64_t to =
      (page * params.num_kv_heads + kv_head) * params.page_size + (slot - page * params.page_size);
  store_codes(pairs, half, to, is_value ? caches.v : caches.k,
              is_value ? caches.v_scales : caches.k_scales);
}

}  // namespace nibble::kernels::device
