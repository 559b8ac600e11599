// Inner products of MXFP4 rows with rows of bf16 inputs, in bf16 dot products.
#pragma once

#include <cstdint>

#include "formats/bf16.h"

namespace nibble::kernels {

// Quad order: of each 128 columns first those that are 0 modulo 4, then 1, 2 and 3. A register of
// codes holds four of them in each 16 bits, and shifts bring the four sets out one after the other.
inline constexpr std::int64_t kQuadGroup = 128;
constexpr std::int64_t quad_position(std::int64_t col) {
  return col / kQuadGroup * kQuadGroup + col % 4 * (kQuadGroup / 4) + col % kQuadGroup / 4;
}

struct Mxfp4Tile {
  const std::uint8_t* codes = nullptr;   // [kTileRows, cols / 2], the first value in the low bits
  const std::uint8_t* scales = nullptr;  // [kTileRows, cols / 32], ue8m0
  const formats::Bf16* x = nullptr;      // [num_inputs, x_stride] in quad order, 64-byte aligned
  float* sums = nullptr;                 // [num_inputs, kTileRows]
  std::int64_t cols = 0;                 // multiple of 32
  std::int64_t x_stride = 0;             // elements; multiple of kQuadGroup, at least cols
  std::int32_t num_inputs = 0;           // 1 .. kTileInputs
};

// sums[i, n] = sum_c x[i, c] * weight[n, c]. Of each group of 128 columns, lane j of one vector
// takes columns 8j .. 8j + 7 without their scale, in four steps of two; the group's sum is scaled
// and added to the lane's. Then the lanes are added. So `cols` alone fixes the order: a result does
// not depend on the other rows and inputs. AVX512-BF16 only, whose products take subnormal numbers
// for zero.
void mxfp4_tile_avx512bf16(const Mxfp4Tile& tile);

}  // namespace nibble::kernels
