// Inner products of MXFP4 rows with rows of int8 inputs, exact within a block.
#pragma once

#include <cstdint>

#include "kernels/moe/int8_groups.h"

namespace nibble::kernels {

struct Mxfp4Int8Tile {
  const std::uint8_t* codes = nullptr;   // [kTileRows, cols / 2], the first value in the low bits
  const std::uint8_t* scales = nullptr;  // [kTileRows, cols / 32], ue8m0
  const Int8Group* x = nullptr;          // [num_inputs, num_int8_groups(cols)]
  float* sums = nullptr;                 // [num_inputs, kTileRows]
  std::int64_t cols = 0;                 // multiple of 32
  std::int32_t num_inputs = 0;           // 1 .. kTileInputs
};

// sums[i, n] = sum over blocks b of s[b] * sum_c q[i, c] * w[n, c], where w is twice the value of a
// code, -12 .. 12, the inner sum a whole number below 2^16, and s the float32 product of the scale
// of the weights and half that of the inputs. Lane l of 16 adds the blocks that lie there
// (int8_lane), groups ascending, one fused multiply-add each. Then the lanes are added: of each
// four the (first + third) + (second + fourth), and these four likewise. Every form gives these
// bits; they depend on `cols` alone, not on the other rows and inputs. NaN where a scale of either
// side is NaN, or the product of the two passes float32.
void mxfp4_tile_int8(const Mxfp4Int8Tile& tile);       // any processor
void mxfp4_tile_int8_vnni(const Mxfp4Int8Tile& tile);  // AVX512-VNNI

}  // namespace nibble::kernels
