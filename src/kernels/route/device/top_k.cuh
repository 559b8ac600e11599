// A warp for each row; lane i holds the logits of experts i, i + 32, ...
#pragma once

#include <cstdint>

#include "kernels/common/element.cuh"
#include "kernels/common/ptx_grid.cuh"

namespace nibble::kernels::device {

inline constexpr int kTopKWarps = 4;  // of a block

struct TopKParams {
  const float* logits;
  std::int32_t* ids;
  float* weights;
  std::int32_t* bad_row;
  int rows;
  int num_valid_rows;
  int num_experts;
  int top_k;  // at most 32
};

struct Candidate {
  float value;
  int id;

  // Larger first, then the smaller id.
  __device__ bool beats(const Candidate& other) const {
    return value > other.value || (value == other.value && id < other.id);
  }
};

__device__ __forceinline__ Candidate warp_best(Candidate best) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const Candidate other{__shfl_xor_sync(0xFFFFFFFFU, best.value, offset),
                          __shfl_xor_sync(0xFFFFFFFFU, best.id, offset)};
    best = other.beats(best) ? other : best;
  }
  return best;
}

template <int kPerLane>
__device__ __forceinline__ void route_row(const TopKParams& params, std::int64_t row, int lane) {
  constexpr int kNobody = 1 << 30;
  const float infinity = __int_as_float(0x7F800000);
  float values[kPerLane];
  bool is_bad = false;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int id = lane + 32 * i;
    const float value =
        id < params.num_experts ? params.logits[row * params.num_experts + id] : 0.0F;
    is_bad |= isnan(value) || value == infinity;
    values[i] = isnan(value) ? -infinity : value;  // ids stay in range whatever comes
  }
  std::uint32_t taken = 0;
  Candidate mine{-infinity, 0};  // of slot `lane`
  for (int slot = 0; slot < params.top_k; ++slot) {
    Candidate best{-infinity, kNobody};
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const Candidate next{values[i], lane + 32 * i};
      const bool is_free = next.id < params.num_experts && (taken >> i & 1U) == 0;
      best = is_free && next.beats(best) ? next : best;
    }
    best = warp_best(best);
    taken |= best.id % 32 == lane ? 1U << (best.id / 32) : 0U;
    mine = slot == lane ? best : mine;
  }
  const float largest = __shfl_sync(0xFFFFFFFFU, mine.value, 0);
  is_bad |= largest == -infinity;
  const float weight = lane < params.top_k ? expf(mine.value - largest) : 0.0F;
  const float total = warp_sum(weight);
  if (lane < params.top_k) {
    params.ids[row * params.top_k + lane] = mine.id;
    params.weights[row * params.top_k + lane] = weight / total;
  }
  if (__any_sync(0xFFFFFFFFU, is_bad) && lane == 0 && params.bad_row != nullptr) {
    atomicMin(params.bad_row, static_cast<int>(row));
  }
}

template <int kPerLane>
__global__ void __launch_bounds__(32 * kTopKWarps) top_k(const TopKParams params) {
  griddepcontrol_wait();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row = static_cast<int>(blockIdx.x * kTopKWarps + threadIdx.x / 32);
  if (row >= params.rows) {
    return;
  }
  if (row < params.num_valid_rows) {
    route_row<kPerLane>(params, row, lane);
  } else if (lane < params.top_k) {
    params.ids[std::int64_t{row} * params.top_k + lane] = lane;
    params.weights[std::int64_t{row} * params.top_k + lane] = 0.0F;
  }
}

}  // namespace nibble::kernels::device
