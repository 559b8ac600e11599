// Products of up to 32 rows, whose time is that of reading the weights once.
//
// A block owns 16 weight rows and all rows of x. Its four warps take turns at pieces of 64 columns,
// so that a row of weights is read in lines of 128 bytes; each lane has kAhead pieces of its rows
// on the way at once, the first of them before the kernel waits for the one before it. Weights are
// the first operand of the matrix instruction, 8 rows of x the second. Partial sums of the warps
// are added in order of the warps: the order of a sum depends on k alone.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/common/ptx_grid.cuh"
#include "kernels/common/ptx_load.cuh"
#include "kernels/common/ptx_mma.cuh"
#include "kernels/gemm/device/gemm_parts.cuh"

namespace nibble::kernels::device {

struct FewRows {
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kTileN = 16;
  static constexpr int kPiece = 64;  // columns
  static constexpr int kAhead = 4;   // 8 KiB in flight for each warp
};

// A lane's share of a piece: for each half of 32 columns, eight of row g and of row g + 8.
struct WeightPiece {
  uint4 low[2];
  uint4 high[2];
};

struct RowPair {
  const __nv_bfloat16* low;   // row g of the tile
  const __nv_bfloat16* high;  // row g + 8
};

__device__ __forceinline__ WeightPiece load_piece(const RowPair& rows, int column, int k) {
  WeightPiece out;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = column + 32 * half;
    const bool is_there = at < k;
    out.low[half] = is_there ? ld_global_nc_v4(rows.low + at) : make_uint4(0, 0, 0, 0);
    out.high[half] = is_there ? ld_global_nc_v4(rows.high + at) : make_uint4(0, 0, 0, 0);
  }
  return out;
}

template <int kTiles>
__device__ __forceinline__ void multiply_piece(const WeightPiece& weights, const __nv_bfloat16* x,
                                               int column, int k, int rows,
                                               float (&sums)[kTiles][4]) {
  const int g = static_cast<int>(threadIdx.x % 32) / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = column + 32 * half;
    const uint4 low = weights.low[half];
    const uint4 high = weights.high[half];
    const std::uint32_t a0[4] = {low.x, high.x, low.y, high.y};
    const std::uint32_t a1[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int row = 8 * tile + g;
      uint4 b = make_uint4(0, 0, 0, 0);
      if (row < rows && at < k) {
        b = __ldg(reinterpret_cast<const uint4*>(x + std::int64_t{row} * k + at));
      }
      mma_m16n8k16_bf16(sums[tile], a0, b.x, b.y);
      mma_m16n8k16_bf16(sums[tile], a1, b.z, b.w);
    }
  }
}

// Adds the warps' sums and writes them: lane (g, t) holds weight rows g, g + 8 of rows 2t, 2t + 1.
template <int kTiles>
__device__ __forceinline__ void store_sums(const GemmParams<__nv_bfloat16>& params,
                                           const GemmTile<__nv_bfloat16>& tile,
                                           const float (&sums)[kTiles][4]) {
  __shared__ float4 shared[FewRows::kWarps][kTiles][32];
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    shared[warp][i][lane] = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
  }
  __syncthreads();
  for (int i = warp; i < kTiles; i += FewRows::kWarps) {
    float total[4] = {};
#pragma unroll
    for (int w = 0; w < FewRows::kWarps; ++w) {
      const float4 part = shared[w][i][lane];
      total[0] += part.x;
      total[1] += part.y;
      total[2] += part.z;
      total[3] += part.w;
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int n = tile.row + lane / 4 + (c / 2) * 8;
      const int row = 8 * i + 2 * (lane % 4) + c % 2;
      if (n < tile.n && row < params.rows) {
        float* to = params.out + row * params.out_stride + tile.column + n;
        const float value = total[c] + (tile.bias == nullptr ? 0.0F : tile.bias[n]);
        *to = params.accumulates ? *to + value : value;
      }
    }
  }
}

// kTiles: groups of eight rows of x.
template <int kTiles>
__global__ void __launch_bounds__(FewRows::kThreads)
    gemm_few_rows(const GemmParams<__nv_bfloat16> params) {
  using Config = FewRows;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const GemmTile<__nv_bfloat16> tile =
      gemm_tile<Config::kTileN>(params, static_cast<int>(blockIdx.x));
  // Rows past the end are read as the last one and not stored.
  const int low = min(tile.row + lane / 4, tile.n - 1);
  const int high = min(tile.row + lane / 4 + 8, tile.n - 1);
  const RowPair rows{tile.weight + std::int64_t{low} * params.k,
                     tile.weight + std::int64_t{high} * params.k};
  const auto* x = static_cast<const __nv_bfloat16*>(params.x);
  constexpr int kStride = Config::kWarps * Config::kPiece;
  float sums[kTiles][4] = {};
  WeightPiece pieces[Config::kAhead];
  const int begin = warp * Config::kPiece + 8 * (lane % 4);
#pragma unroll
  for (int i = 0; i < Config::kAhead; ++i) {
    pieces[i] = load_piece(rows, begin + i * kStride, params.k);
  }
  griddepcontrol_wait();
  for (int column = begin; column - 8 * (lane % 4) < params.k; column += Config::kAhead * kStride) {
#pragma unroll
    for (int i = 0; i < Config::kAhead; ++i) {
      multiply_piece<kTiles>(pieces[i], x, column + i * kStride, params.k, params.rows, sums);
      pieces[i] = load_piece(rows, column + (i + Config::kAhead) * kStride, params.k);
    }
  }
  griddepcontrol_launch_dependents();
  store_sums<kTiles>(params, tile, sums);
}

}  // namespace nibble::kernels::device
