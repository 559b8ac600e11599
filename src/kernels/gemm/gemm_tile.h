// Inner products of a few weight rows with a few rows of x, for the vectors of this processor.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace nibble::kernels {

inline constexpr std::int32_t kTileRows = 8;     // weight rows of a tile
inline constexpr std::int32_t kTileInputs = 48;  // most rows of x in a call

struct GemmTile {
  const void* weight =
      nullptr;  // [num_rows, k]; kE2M1: two values a byte, the first in the low bits
  const std::uint8_t* scales = nullptr;  // [num_rows, k / 32] powers of two (ue8m0); kE2M1 only
  const void* x = nullptr;               // [num_inputs, x_stride]
  float* sums = nullptr;                 // [num_inputs, kTileRows]
  std::int32_t num_rows = 0;             // 1 .. kTileRows
  std::int32_t num_inputs = 0;           // 1 .. kTileInputs
  std::int32_t k = 0;                    // kE2M1: multiple of 32
  std::int64_t x_stride = 0;             // elements from a row of x to the next
  DType weight_dtype = DType::kBF16;     // kF32, kBF16 or kE2M1
  DType x_dtype = DType::kF32;
};

// sums[i, n] = sum_k x[i, k] * weight[n, k]. Lane j of one vector sums the elements k = j modulo
// the lanes in ascending order, then the lanes are added: an order that `k` alone fixes. Weights of
// bf16 or float32.
void gemm_tile(const GemmTile& tile);

// The same for x of bf16 with weights of bf16 or e2m1, in pairs: lane j sums elements 2j and 2j + 1
// of every 32. With e2m1, x lies in groups of 64, zeros behind the last: first the 32 values of
// even index, then the odd ones; a group's sum is scaled, then added. AVX512-BF16 only.
void gemm_tile_avx512bf16(const GemmTile& tile);

}  // namespace nibble::kernels
