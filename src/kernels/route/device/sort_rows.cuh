// Stable counting sort by expert in one block: routed rows are few beside what follows. Entries are
// taken 1,024 at a time, one a thread; within those, a warp ranks its entries by a match over lanes
// and the block ranks its warps.
#pragma once

#include <cstdint>

#include "kernels/common/ptx_grid.cuh"

namespace nibble::kernels::device {

inline constexpr int kSortThreads = 1024;
inline constexpr int kSortWarps = kSortThreads / 32;
inline constexpr int kMostSortedExperts = 256;

struct SortRowsParams {
  const std::int32_t* ids;
  std::int32_t* slice_offs;
  std::int32_t* gather;
  std::int32_t* scatter;
  int rows;
  int num_experts;
};

struct SortRowsShared {
  int next[kMostSortedExperts];               // row of the expert's next entry
  int begin[kSortWarps][kMostSortedExperts];  // of a warp's entries: counts, then rows
};

// Exclusive sums of `shared.next` over the experts, by the first warp.
__device__ __forceinline__ void sum_experts(const SortRowsParams& params, SortRowsShared& shared) {
  const int lane = static_cast<int>(threadIdx.x);
  int carry = 0;
  for (int base = 0; base < params.num_experts; base += 32) {
    const int expert = base + lane;
    const int count = expert < params.num_experts ? shared.next[expert] : 0;
    int sum = count;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, sum, offset);
      sum += lane >= offset ? other : 0;
    }
    if (expert < params.num_experts) {
      shared.next[expert] = carry + sum - count;
      params.slice_offs[expert] = carry + sum - count;
    }
    carry += __shfl_sync(0xFFFFFFFFU, sum, 31);
  }
  if (lane == 0) {
    params.slice_offs[params.num_experts] = carry;
  }
}

__device__ __forceinline__ void place_entries(const SortRowsParams& params, int first,
                                              SortRowsShared& shared) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int flat = first + static_cast<int>(threadIdx.x);
  const int expert = flat < params.rows ? params.ids[flat] : -1;
  for (int i = lane; i < params.num_experts; i += 32) {
    shared.begin[warp][i] = 0;
  }
  __syncwarp();
  const unsigned same = __match_any_sync(0xFFFFFFFFU, expert);
  const int rank = __popc(same & ((1U << lane) - 1U));
  if (rank == 0 && expert >= 0) {
    shared.begin[warp][expert] = __popc(same);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < params.num_experts; i += kSortThreads) {
    int at = shared.next[i];
    for (int w = 0; w < kSortWarps; ++w) {
      const int count = shared.begin[w][i];
      shared.begin[w][i] = at;
      at += count;
    }
    shared.next[i] = at;
  }
  __syncthreads();
  if (expert >= 0) {
    const int row = shared.begin[warp][expert] + rank;
    params.gather[row] = flat;
    params.scatter[flat] = row;
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kSortThreads) sort_rows(const SortRowsParams params) {
  __shared__ SortRowsShared shared;
  griddepcontrol_wait();
  for (int i = static_cast<int>(threadIdx.x); i < params.num_experts; i += kSortThreads) {
    shared.next[i] = 0;
  }
  __syncthreads();
  for (int flat = static_cast<int>(threadIdx.x); flat < params.rows; flat += kSortThreads) {
    atomicAdd(&shared.next[params.ids[flat]], 1);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    sum_experts(params, shared);
  }
  __syncthreads();
  for (int first = 0; first < params.rows; first += kSortThreads) {
    place_entries(params, first, shared);
  }
  griddepcontrol_launch_dependents();
}

}  // namespace nibble::kernels::device
