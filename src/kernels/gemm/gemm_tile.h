// Inner products of a few weight rows with a few rows of x, for the vectors of this processor.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace nibble::kernels {

inline constexpr std::int32_t kTileRows = 8;     // weight rows of a tile
inline constexpr std::int32_t kTileInputs = 96;  // most rows of x in a call

struct GemmTile {
  const void* weight = nullptr;  // [num_rows, k]
  const void* x = nullptr;       // [num_inputs, x_stride]
  float* sums = nullptr;         // [num_inputs, kTileRows]
  std::int32_t num_rows = 0;     // 1 .. kTileRows
  std::int32_t num_inputs = 0;   // 1 .. kTileInputs
  std::int32_t k = 0;
  std::int64_t x_stride = 0;          // elements from a row of x to the next
  DType weight_dtype = DType::kBF16;  // kF32 or kBF16
  DType x_dtype = DType::kF32;
};

// sums[i, n] = sum_k x[i, k] * weight[n, k]. Lane j of one vector sums the elements k = j modulo
// the lanes in ascending order, then the lanes are added: an order that `k` alone fixes.
void gemm_tile(const GemmTile& tile);

// The same for x and weights of bf16, in pairs: lane j sums elements 2j and 2j + 1 of every 32.
// AVX512-BF16 only, whose products take subnormal numbers for zero.
void gemm_tile_avx512bf16(const GemmTile& tile);

}  // namespace nibble::kernels
