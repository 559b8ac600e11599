// Products in float32 arithmetic, for inputs that are not rounded to bf16: a warp for each weight
// row and up to four rows of x.
#pragma once

#include <cstdint>

#include "kernels/common/element.cuh"
#include "kernels/common/ptx_grid.cuh"
#include "kernels/gemm/device/gemm_parts.cuh"

namespace nibble::kernels::device {

inline constexpr int kPlainWarps = 8;
inline constexpr int kPlainRows = 4;

template <typename X, typename W>
__global__ void __launch_bounds__(32 * kPlainWarps) gemm_plain(const GemmParams<W> params) {
  griddepcontrol_wait();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const GemmTile<W> tile = gemm_tile<kPlainWarps>(params, static_cast<int>(blockIdx.x));
  const int n = tile.row + static_cast<int>(threadIdx.x / 32);
  if (n >= tile.n) {
    return;
  }
  const int first_row = static_cast<int>(blockIdx.y) * kPlainRows;
  const W* w = tile.weight + std::int64_t{n} * params.k;
  const X* x = static_cast<const X*>(params.x) + std::int64_t{first_row} * params.k;
  float sums[kPlainRows] = {};
  for (int k = lane; k < params.k; k += 32) {
    const float weight = load_f32(w + k);
#pragma unroll
    for (int row = 0; row < kPlainRows; ++row) {
      if (first_row + row < params.rows) {
        sums[row] += weight * load_f32(x + std::int64_t{row} * params.k + k);
      }
    }
  }
#pragma unroll
  for (int row = 0; row < kPlainRows; ++row) {
    const float sum = warp_sum(sums[row]);
    if (lane == 0 && first_row + row < params.rows) {
      float* to = params.out + (first_row + row) * params.out_stride + tile.column + n;
      const float value = sum + (tile.bias == nullptr ? 0.0F : tile.bias[n]);
      *to = params.accumulates ? *to + value : value;
    }
  }
}

}  // namespace nibble::kernels::device
