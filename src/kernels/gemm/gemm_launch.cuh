// From a call to what the kernels take.
#pragma once

#include "kernels/common/launch.cuh"
#include "kernels/gemm/device/gemm_parts.cuh"
#include "kernels/gemm/gemm.h"

namespace nibble::kernels {

template <typename W>
struct TiledGemm {
  device::GemmParams<W> params{};
  int num_tiles = 0;
};

// Weight rows of each part in tiles of `tile_n`; a part without rows has no tile.
template <typename W>
TiledGemm<W> tile_parts(const GemmArgs& args, int tile_n) {
  TiledGemm<W> out;
  device::GemmParams<W>& params = out.params;
  params.x = args.x;
  params.out = args.out;
  params.out_stride = args.out_stride;
  params.rows = args.rows;
  params.k = args.k;
  params.accumulates = args.accumulate;
  int column = 0;
  for (const GemmPart& part : args.parts) {
    if (part.n > 0) {
      const int i = params.num_parts++;
      params.weight[i] = static_cast<const W*>(part.weight);
      params.bias[i] = part.bias;
      params.n[i] = part.n;
      params.column[i] = column;
      params.first_tile[i] = out.num_tiles;
      out.num_tiles += static_cast<int>(ceil_div(part.n, tile_n));
    }
    column += part.n;
  }
  return out;
}

// The matrix kernels read rows of x and of the weights 16 bytes at a time.
inline bool fits_matrix_kernels(const GemmArgs& args) {
  return args.x_dtype == DType::kBF16 && args.weight_dtype == DType::kBF16 && args.k % 8 == 0 &&
         args.parts.size() <= device::kMaxGemmParts;
}

}  // namespace nibble::kernels
