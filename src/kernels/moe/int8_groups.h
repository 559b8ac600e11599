// Inputs of the expert products as whole numbers: blocks of 32 columns with one float32 scale.
//
//   most  = max |x_i| over the block
//   q_i   = x_i * (127 / most), in float32, rounded to nearest, ties to even: -127 .. 127
//   scale = most / 127, so that x_i is about q_i * scale
//
// A block below 2^-118, whose halved scale would be subnormal, is zero. A block that holds NaN or
// Inf has the scale NaN, and so has every product with it.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace nibble::kernels {

inline constexpr std::int64_t kInt8Block = 32;
inline constexpr std::int32_t kInt8Lanes = 16;  // blocks of a group
inline constexpr std::int64_t kInt8GroupColumns = kInt8Lanes * kInt8Block;
inline constexpr std::int32_t kInt8Sets = 8;

// 16 blocks, each in one 32-bit lane of eight registers: a product of registers sums a block within
// its lane. Byte j of the lane in set 2 k + odd is column 8 k + 2 j + odd of the block: the order
// in which a block's nibbles come out of the dwords of its codes.
struct alignas(64) Int8Group {
  std::int8_t values[kInt8Sets][kInt8Lanes * 4];
  std::int32_t starts[kInt8Lanes];  // -12 times the sum of the block's values
  float half_scales[kInt8Lanes];    // for weights that are doubled
};
static_assert(sizeof(Int8Group) == 640);

// Four registers of codes, whose quarters are blocks, are transposed in dwords: block 4 g + q of
// register g comes to lie in lane 4 q + g.
constexpr std::int32_t int8_lane(std::int64_t block) {
  return static_cast<std::int32_t>(block % 4 * 4 + block % kInt8Lanes / 4);
}
constexpr std::int64_t num_int8_groups(std::int64_t cols) {
  return (cols + kInt8GroupColumns - 1) / kInt8GroupColumns;
}

// Blocks [first, first + count) of a row from 32 * count values. The same bits on every processor.
void quantize_blocks(const float* x, std::int64_t first, std::int64_t count, Int8Group* row);

// A whole row of `cols` values, a multiple of 32; what is left of the last group becomes zeros.
void quantize_row(const void* x, DType dtype, std::int64_t cols, Int8Group* row);

}  // namespace nibble::kernels
