// The parts of a product as a kernel takes them, cut into tiles of weight rows.
#pragma once

#include <cstdint>

namespace nibble::kernels::device {

inline constexpr int kMaxGemmParts = 4;

template <typename W>
struct GemmParams {
  const void* x;
  float* out;
  std::int64_t out_stride;
  int rows;
  int k;
  int num_parts;
  bool accumulates;
  const W* weight[kMaxGemmParts];
  const float* bias[kMaxGemmParts];  // null: none
  int n[kMaxGemmParts];
  int column[kMaxGemmParts];      // first of the part in `out`
  int first_tile[kMaxGemmParts];  // of the part
};

// Weight rows [row, row + tile) of one part; those at and beyond n are not there.
template <typename W>
struct GemmTile {
  const W* weight;
  const float* bias;
  int n;
  int column;
  int row;
  int part;
};

template <int kTileN, typename W>
__device__ __forceinline__ GemmTile<W> gemm_tile(const GemmParams<W>& params, int tile) {
  int part = 0;
#pragma unroll
  for (int i = 1; i < kMaxGemmParts; ++i) {
    part = i < params.num_parts && tile >= params.first_tile[i] ? i : part;
  }
  return {params.weight[part],
          params.bias[part],
          params.n[part],
          params.column[part],
          (tile - params.first_tile[part]) * kTileN,
          part};
}

struct TilePlace {
  int row_tile;
  int n_tile;
};

// Walks the weight tiles for a group of kGroup row tiles, then the next group.
template <int kGroup>
__device__ __forceinline__ TilePlace tile_place(int index, int row_tiles, int n_tiles) {
  const int per_group = kGroup * n_tiles;
  const int first = index / per_group * kGroup;
  const int height = min(kGroup, row_tiles - first);
  const int in_group = index % per_group;
  return {first + in_group % height, in_group / height};
}

}  // namespace nibble::kernels::device
