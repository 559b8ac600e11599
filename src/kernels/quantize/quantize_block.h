// Inside of the family: one block at a time. The driver walks matrices, these do the arithmetic.
#pragma once

#include <cstdint>

#include "kernels/quantize/quantize.h"

namespace nibble::kernels {

inline constexpr std::int32_t kMaxBlockElems = 32;

// Inner loops over the values of one block, 16 or 32 of them, 64-byte aligned.
struct BlockOps {
  // Largest bit pattern with the sign removed: 0x7F800000 and above means Inf or NaN.
  std::uint32_t (*max_magnitude_bits)(const float* block, std::int32_t elems);
  // Codes of block / step; both return how many saturated. `block` is finite, `step` not zero.
  std::int32_t (*encode_e2m1)(const float* block, std::int32_t elems, float step,
                              std::uint8_t* packed);
  std::int32_t (*encode_e4m3)(const float* block, std::int32_t elems, float step,
                              std::uint8_t* codes);
};

const BlockOps& scalar_block_ops();
const BlockOps& cpu_block_ops();  // the widest vectors this processor has

struct BlockRule {
  QuantFormat format = QuantFormat::kMxfp4;
  formats::ScaleRounding rounding = formats::ScaleRounding::kUp;
  float global = 1.0F;
};

struct BlockScale {
  std::uint8_t code = 0;
  float step = 0.0F;
};

// Scale of a finite block with largest magnitude `amax`.
BlockScale choose_scale(const BlockRule& rule, const float* block, float amax);

// Factor of the elements under a stored scale byte.
float block_step(QuantFormat format, std::uint8_t scale, float global);

// Scale byte that makes a block NaN.
constexpr std::uint8_t nan_scale(QuantFormat format) {
  return format == QuantFormat::kNvfp4 ? 0x7F : 0xFF;
}

// Walks the matrices; the arguments are valid and the global scales known.
QuantizeReport quantize_matrices(const QuantizeArgs& args, const BlockOps& ops, ThreadPool* pool);

}  // namespace nibble::kernels
