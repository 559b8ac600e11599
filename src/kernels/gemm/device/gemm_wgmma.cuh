// Products of many rows on Hopper's tensor cores: tiles of 128 or 64 rows of x by
// kTileN weight rows.
//
// Persistent blocks walk the tiles in groups that share weights in L2. One thread has the copy
// engine fill a ring of stages, 64 columns of both operands in swizzled shared memory each;
// warpgroups multiply 64 rows each, both operands read from there. Either may be ahead of the other
// by the ring, so one stores its sums while the other multiplies.
//
// Sums run over k in order, 16 at a time, whatever the rows and the tile.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/common/ptx_grid.cuh"
#include "kernels/common/ptx_load.cuh"
#include "kernels/common/ptx_tma.cuh"
#include "kernels/common/ptx_wgmma_shared.cuh"
#include "kernels/gemm/device/gemm_parts.cuh"

namespace nibble::kernels::device {

template <int kTileNOf, int kTileMOf = 128, int kGroupOf = 16>
struct WideConfig {
  static constexpr int kTileM = kTileMOf;
  static constexpr int kTileN = kTileNOf;
  static constexpr int kTileK = 64;
  static constexpr int kGroup = kGroupOf;  // row tiles that share weight tiles in L2
  static constexpr int kMultiplyGroups = kTileM / 64;
  static constexpr int kMultiplyThreads = kMultiplyGroups * 128;
  static constexpr int kThreads = kMultiplyThreads + 32;
  static constexpr int kXBytes = kTileM * kTileK * 2;
  static constexpr int kWeightBytes = kTileN * kTileK * 2;
  static constexpr int kStages = 200 * 1024 / (kXBytes + kWeightBytes);
  static_assert(kTileK * 2 == 128, "a row of a stage is one line of the swizzle");
  static_assert(kTileN <= 256 && kTileN % 8 == 0, "the widest instruction, and the widest box");
  static_assert(kTileM == 64 * kMultiplyGroups, "64 rows an instruction, a warpgroup each");
};

struct WideParams {
  GemmParams<__nv_bfloat16> gemm;
  int row_tiles;
  int n_tiles;
  CUtensorMap x;
  CUtensorMap weight[kMaxGemmParts];
};

template <typename Config>
struct WideShared {
  alignas(1024) unsigned char x[Config::kStages][Config::kXBytes];
  alignas(1024) unsigned char weight[Config::kStages][Config::kWeightBytes];
  std::uint64_t full[Config::kStages];   // the loading thread, and the bytes it asked for
  std::uint64_t empty[Config::kStages];  // one a multiplying warp
};

template <typename Config>
struct WideSlot {
  int index = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == Config::kStages) {
      index = 0;
      parity ^= 1U;
    }
  }
};

// Tiles of this block in order.
template <typename Config>
struct WideTiles {
  const WideParams& params;
  int index = static_cast<int>(blockIdx.x);

  __device__ __forceinline__ bool is_there() const {
    return index < params.row_tiles * params.n_tiles;
  }
  __device__ __forceinline__ void next() { index += static_cast<int>(gridDim.x); }
  __device__ __forceinline__ TilePlace place() const {
    return tile_place<Config::kGroup>(index, params.row_tiles, params.n_tiles);
  }
  __device__ __forceinline__ int num_stages() const {
    return (params.gemm.k + Config::kTileK - 1) / Config::kTileK;
  }
};

// By one thread.
template <typename Config>
__device__ __forceinline__ void load_tiles(const WideParams& params, WideShared<Config>& shared) {
  WideSlot<Config> slot;
  for (WideTiles<Config> tiles{params}; tiles.is_there(); tiles.next()) {
    const TilePlace place = tiles.place();
    const auto tile = gemm_tile<Config::kTileN>(params.gemm, place.n_tile);
    const CUtensorMap& weight = params.weight[tile.part];
    for (int stage = 0; stage < tiles.num_stages(); ++stage) {
      mbarrier_wait(&shared.empty[slot.index], slot.parity ^ 1U);
      std::uint64_t* const full = &shared.full[slot.index];
      mbarrier_arrive_expect_tx(full, Config::kXBytes + Config::kWeightBytes);
      const int column = stage * Config::kTileK;
      cp_async_bulk_tensor_2d(shared.x[slot.index], params.x, column,
                              place.row_tile * Config::kTileM, full);
      cp_async_bulk_tensor_2d(shared.weight[slot.index], weight, column, tile.row, full);
      slot.next();
    }
  }
}

// Sums of 64 rows of x and all weight rows of a tile: lane (g, t) of a warp has rows g and g + 8 of
// its sixteen, weight rows 8j + 2t and the next.
template <typename Config>
__device__ __forceinline__ void multiply_tile(WideShared<Config>& shared, int num_stages,
                                              WideSlot<Config>& slot,
                                              float (&sums)[Config::kTileN / 2]) {
  const std::uint32_t rows = threadIdx.x / 128 * 64 * 128;
#pragma unroll
  for (float& sum : sums) {
    sum = 0.0F;
  }
  const auto release = [&shared](int stage) {
    if (stage >= 0 && threadIdx.x % 32 == 0) {
      mbarrier_arrive(&shared.empty[stage]);
    }
  };
  int previous = -1;  // whose products are under way
  for (int stage = 0; stage < num_stages; ++stage) {
    const std::uint64_t x = wgmma_descriptor(shared_address(shared.x[slot.index]) + rows);
    const std::uint64_t weight = wgmma_descriptor(shared_address(shared.weight[slot.index]));
    mbarrier_wait(&shared.full[slot.index], slot.parity);
    wgmma_fence();
#pragma unroll
    for (unsigned s = 0; s < Config::kTileK / 16; ++s) {
      WgmmaShared<Config::kTileN>::add(sums, x + 2 * s, weight + 2 * s);
    }
    wgmma_commit_group();
    wgmma_wait_group<1>();
    release(previous);
    previous = slot.index;
    slot.next();
  }
  wgmma_wait_group<0>();
  hold_registers(sums);
  release(previous);
}

// The two neighbouring sums of a lane, of weight rows n and n + 1 of a tile.
struct PairPlace {
  bool has_low;
  bool has_high;
  bool is_whole;  // both are there, and aligned
};

__device__ __forceinline__ float2 load_former(const float* from, const PairPlace& place) {
  if (place.is_whole) {
    return *reinterpret_cast<const float2*>(from);
  }
  return {place.has_low ? from[0] : 0.0F, place.has_high ? from[1] : 0.0F};
}

__device__ __forceinline__ void store_values(float* to, const PairPlace& place, float2 values) {
  if (place.is_whole) {
    *reinterpret_cast<float2*>(to) = values;
    return;
  }
  if (place.has_low) {
    to[0] = values.x;
  }
  if (place.has_high) {
    to[1] = values.y;
  }
}

// Has the former values of a tile brought to L2 while it is multiplied.
template <typename Config>
__device__ __forceinline__ void prefetch_former(const GemmParams<__nv_bfloat16>& params,
                                                const GemmTile<__nv_bfloat16>& tile,
                                                int first_row) {
  constexpr int kLine = 32;  // floats
  const int row = first_row + static_cast<int>(threadIdx.x) / 2;
  if (!params.accumulates || row >= params.rows) {
    return;
  }
  const float* from = params.out + row * params.out_stride + tile.column + tile.row;
  for (int n = static_cast<int>(threadIdx.x) % 2 * kLine;
       n < min(Config::kTileN, tile.n - tile.row); n += 2 * kLine) {
    prefetch_l2(from + n);
  }
}

// Adds bias and former values. `row`: of x, row g of the lane.
template <typename Config>
__device__ __forceinline__ void store_sums(const GemmParams<__nv_bfloat16>& params,
                                           const GemmTile<__nv_bfloat16>& tile, int row,
                                           const float (&sums)[Config::kTileN / 2]) {
  constexpr int kAtOnce = 4;  // eights of weight rows whose former values are read together
  const int first = tile.row + 2 * static_cast<int>(threadIdx.x % 4);
  float* const out = params.out + row * params.out_stride + tile.column + first;
  const bool is_aligned =
      params.out_stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(out) % sizeof(float2) == 0;
  const bool is_there[2] = {row < params.rows, row + 8 < params.rows};
#pragma unroll
  for (int base = 0; base < Config::kTileN / 8; base += kAtOnce) {
    PairPlace places[kAtOnce];
    float2 former[kAtOnce][2] = {};
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int n = 8 * (base + j);
      places[j].has_low = first + n < tile.n;
      places[j].has_high = first + n + 1 < tile.n;
      places[j].is_whole = is_aligned && places[j].has_high;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (params.accumulates && is_there[half]) {
          former[j][half] = load_former(out + 8 * half * params.out_stride + n, places[j]);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int n = 8 * (base + j);
      const bool has_bias = tile.bias != nullptr;
      const float low = has_bias && places[j].has_low ? __ldg(tile.bias + first + n) : 0.0F;
      const float high = has_bias && places[j].has_high ? __ldg(tile.bias + first + n + 1) : 0.0F;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* sum = sums + 4 * (base + j) + 2 * half;
        const float2 values = {former[j][half].x + (sum[0] + low),
                               former[j][half].y + (sum[1] + high)};
        if (is_there[half]) {
          store_values(out + 8 * half * params.out_stride + n, places[j], values);
        }
      }
    }
  }
}

template <typename Config>
__device__ __forceinline__ void multiply_tiles(const WideParams& params,
                                               WideShared<Config>& shared) {
  WideSlot<Config> slot;
  for (WideTiles<Config> tiles{params}; tiles.is_there(); tiles.next()) {
    const TilePlace place = tiles.place();
    const auto tile = gemm_tile<Config::kTileN>(params.gemm, place.n_tile);
    const int first_row = place.row_tile * Config::kTileM;
    prefetch_former<Config>(params.gemm, tile, first_row);
    float sums[Config::kTileN / 2];
    multiply_tile<Config>(shared, tiles.num_stages(), slot, sums);
    const int row = first_row + static_cast<int>(threadIdx.x / 32) * 16 +
                    static_cast<int>(threadIdx.x % 32) / 4;
    store_sums<Config>(params.gemm, tile, row, sums);
  }
}

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    gemm_wide(const __grid_constant__ WideParams params) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<WideShared<Config>*>(raw);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStages; ++i) {
      mbarrier_init(&shared.full[i], 1);
      mbarrier_init(&shared.empty[i], Config::kMultiplyGroups * 4);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  if (threadIdx.x < Config::kMultiplyThreads) {
    multiply_tiles<Config>(params, shared);
  } else if (threadIdx.x == Config::kMultiplyThreads) {
    load_tiles<Config>(params, shared);
  }
}

}  // namespace nibble::kernels::device
