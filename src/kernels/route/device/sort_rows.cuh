// Stable counting sort by expert. A block places 1,024 entries, one a thread: it counts all entries
// and those before its own by itself, since reading them costs less than a second launch; then a
// warp ranks its entries by a match over lanes and the block ranks its warps.
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
  int next[kMostSortedExperts];    // row of the expert's next entry
  int before[kMostSortedExperts];  // its entries before those of this block
  // Of a warp's entries: counts, then rows. One more, so that the warps of an expert lie in banks
  // of their own.
  int begin[kSortWarps][kMostSortedExperts + 1];
};

// Counts of all entries and of those before `first`.
__device__ __forceinline__ void count_entries(const SortRowsParams& params, int first,
                                              SortRowsShared& shared) {
  for (int i = static_cast<int>(threadIdx.x); i < params.num_experts; i += kSortThreads) {
    shared.next[i] = 0;
    shared.before[i] = 0;
  }
  __syncthreads();
#pragma unroll 4
  for (int flat = static_cast<int>(threadIdx.x); flat < params.rows; flat += kSortThreads) {
    const int expert = params.ids[flat];
    atomicAdd(&shared.next[expert], 1);
    if (flat < first) {
      atomicAdd(&shared.before[expert], 1);
    }
  }
  __syncthreads();
}

// From counts to rows, by the first warp: exclusive sums over the experts, written by the first
// block, and in `shared.next` where this block begins.
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
      shared.next[expert] = carry + sum - count + shared.before[expert];
      if (blockIdx.x == 0) {
        params.slice_offs[expert] = carry + sum - count;
      }
    }
    carry += __shfl_sync(0xFFFFFFFFU, sum, 31);
  }
  if (lane == 0 && blockIdx.x == 0) {
    params.slice_offs[params.num_experts] = carry;
  }
}

// Where each warp's entries of each expert begin: lane i has warp i.
__device__ __forceinline__ void sum_warps(const SortRowsParams& params, SortRowsShared& shared) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = static_cast<int>(threadIdx.x / 32); i < params.num_experts; i += kSortWarps) {
    const int count = shared.begin[lane][i];
    int sum = count;
#pragma unroll
    for (int offset = 1; offset < kSortWarps; offset *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, sum, offset);
      sum += lane >= offset ? other : 0;
    }
    shared.begin[lane][i] = shared.next[i] + sum - count;
  }
}

__global__ void __launch_bounds__(kSortThreads) sort_rows(const SortRowsParams params) {
  static_assert(kSortWarps == 32, "a lane for each warp");
  __shared__ SortRowsShared shared;
  griddepcontrol_wait();
  const int first = static_cast<int>(blockIdx.x) * kSortThreads;
  count_entries(params, first, shared);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (warp == 0) {
    sum_experts(params, shared);
  }
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
  sum_warps(params, shared);
  __syncthreads();
  if (expert >= 0) {
    const int row = shared.begin[warp][expert] + rank;
    params.gather[row] = flat;
    params.scatter[flat] = row;
  }
  griddepcontrol_launch_dependents();
}

}  // namespace nibble::kernels::device
