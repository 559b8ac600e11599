// Products of many rows: tiles of 128 rows of x by 128 weight rows, through shared memory.
//
//   stage:  128 rows of 64 columns of x, then of the weights; the 16-byte piece c of row r lies at
//           place c ^ (r % 8), so that ldmatrix and cp.async meet each bank once
//   warps:  2 by 4, each 64 rows by 32 weight rows
//
// Sums run over k in order, 16 at a time, whatever the rows.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/common/ptx_cp_async.cuh"
#include "kernels/common/ptx_grid.cuh"
#include "kernels/common/ptx_ldmatrix.cuh"
#include "kernels/common/ptx_mbarrier.cuh"
#include "kernels/common/ptx_mma.cuh"
#include "kernels/gemm/device/gemm_parts.cuh"

namespace nibble::kernels::device {

struct ManyRows {
  static constexpr int kTileM = 128;
  static constexpr int kTileN = 128;
  static constexpr int kTileK = 64;
  static constexpr int kStages = 3;
  static constexpr int kThreads = 256;
  static constexpr int kGroup = 16;  // row tiles that share weight tiles in L2
  static constexpr int kWarpM = 64;
  static constexpr int kWarpN = 32;
  static_assert(kTileK * 2 == 128, "a row of a stage is one line of 128 bytes: eight pieces");
  static_assert((kTileM / kWarpM) * (kTileN / kWarpN) * 32 == kThreads, "a warp for each sub-tile");
};

struct ManyRowsShared {
  uint4 x[ManyRows::kStages][ManyRows::kTileM][8];
  uint4 w[ManyRows::kStages][ManyRows::kTileN][8];
};

// 128 rows of 64 columns into a stage; rows and columns that are not there become zeros.
__device__ __forceinline__ void load_stage(uint4 (&to)[128][8], const __nv_bfloat16* from,
                                           int num_rows, int column, int k) {
#pragma unroll
  for (int i = 0; i < 128 * 8 / ManyRows::kThreads; ++i) {
    const int piece = static_cast<int>(threadIdx.x) + i * ManyRows::kThreads;
    const int row = piece / 8;
    const int at = column + piece % 8 * 8;
    const bool is_there = row < num_rows && at < k;
    cp_async_cg_16(shared_address(&to[row][piece % 8 ^ row % 8]),
                   is_there ? from + std::int64_t{row} * k + at : from, is_there ? 16 : 0);
  }
}

// The stage's 64 columns: sums += x . w^T for this warp's sub-tile.
__device__ __forceinline__ void multiply_stage(const uint4 (&x)[128][8], const uint4 (&w)[128][8],
                                               int warp_m, int warp_n, float (&sums)[4][4][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int step = 0; step < ManyRows::kTileK / 16; ++step) {
    std::uint32_t a[4][4];
    std::uint32_t b[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // matrices: rows 0-7, 8-15 of k 0-7, then of k 8-15
      const int row = warp_m + 16 * i + lane % 16;
      ldmatrix_x4(a[i], shared_address(&x[row][(2 * step + lane / 16) ^ row % 8]));
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // matrices: k 0-7, 8-15 of weight rows 0-7, then of 8-15
      const int row = warp_n + 16 * i + lane / 16 * 8 + lane % 8;
      ldmatrix_x4(b[i], shared_address(&w[row][(2 * step + lane / 8 % 2) ^ row % 8]));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        mma_m16n8k16_bf16(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

__device__ __forceinline__ void store_pair(const GemmParams<__nv_bfloat16>& params,
                                           const GemmTile<__nv_bfloat16>& tile, int row, int n,
                                           float first, float second) {
  if (row >= params.rows) {
    return;
  }
  float* to = params.out + row * params.out_stride + tile.column + n;
  const float values[2] = {first, second};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (n + i < tile.n) {
      const float value = values[i] + (tile.bias == nullptr ? 0.0F : tile.bias[n + i]);
      to[i] = params.accumulates ? to[i] + value : value;
    }
  }
}

__device__ __forceinline__ void store_tile(const GemmParams<__nv_bfloat16>& params,
                                           const GemmTile<__nv_bfloat16>& tile, int row, int n,
                                           const float (&sums)[4][4][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at_row = row + 16 * i + lane / 4;
      const int at_n = n + 8 * j + 2 * (lane % 4);
      store_pair(params, tile, at_row, at_n, sums[i][j][0], sums[i][j][1]);
      store_pair(params, tile, at_row + 8, at_n, sums[i][j][2], sums[i][j][3]);
    }
  }
}

struct TilePlace {
  int row_tile;
  int n_tile;
};

// Blocks walk the weight tiles for a group of row tiles, then the next group.
__device__ __forceinline__ TilePlace tile_place(int block, int row_tiles, int n_tiles) {
  const int per_group = ManyRows::kGroup * n_tiles;
  const int first = block / per_group * ManyRows::kGroup;
  const int height = min(ManyRows::kGroup, row_tiles - first);
  const int in_group = block % per_group;
  return {first + in_group % height, in_group / height};
}

// Two blocks on a multiprocessor: one multiplies while the other waits for its stage.
__global__ void __launch_bounds__(ManyRows::kThreads, 2)
    gemm_many_rows(const GemmParams<__nv_bfloat16> params, int row_tiles, int n_tiles) {
  using Config = ManyRows;
  extern __shared__ __align__(128) unsigned char bytes[];
  auto& shared = *reinterpret_cast<ManyRowsShared*>(bytes);
  const TilePlace place = tile_place(static_cast<int>(blockIdx.x), row_tiles, n_tiles);
  const GemmTile<__nv_bfloat16> tile = gemm_tile<Config::kTileN>(params, place.n_tile);
  const int row = place.row_tile * Config::kTileM;
  const auto* x = static_cast<const __nv_bfloat16*>(params.x) + std::int64_t{row} * params.k;
  const auto* w = tile.weight + std::int64_t{tile.row} * params.k;
  const int num_stages = (params.k + Config::kTileK - 1) / Config::kTileK;
  const auto load = [&](int stage) {
    if (stage < num_stages) {
      load_stage(shared.x[stage % Config::kStages], x, params.rows - row, stage * Config::kTileK,
                 params.k);
      load_stage(shared.w[stage % Config::kStages], w, tile.n - tile.row, stage * Config::kTileK,
                 params.k);
    }
    cp_async_commit_group();
  };
  griddepcontrol_wait();
  for (int stage = 0; stage < Config::kStages - 1; ++stage) {
    load(stage);
  }
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int warp_m = warp / 4 * Config::kWarpM;
  const int warp_n = warp % 4 * Config::kWarpN;
  float sums[4][4][4] = {};
  for (int stage = 0; stage < num_stages; ++stage) {
    cp_async_wait_group<Config::kStages - 2>();
    __syncthreads();  // the stage is there, and nobody reads the one that is loaded next
    load(stage + Config::kStages - 1);
    multiply_stage(shared.x[stage % Config::kStages], shared.w[stage % Config::kStages], warp_m,
                   warp_n, sums);
  }
  griddepcontrol_launch_dependents();
  store_tile(params, tile, row + warp_m, tile.row + warp_n, sums);
}

}  // namespace nibble::kernels::device
