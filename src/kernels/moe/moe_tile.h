// Inner products of expert rows with float32 inputs, and the activation between the two expert
// products, for the vectors of this processor.
#pragma once

#include <cstdint>

#include "kernels/moe/moe_steps.h"
#include "tensor/dtype.h"

namespace nibble::kernels {

// Split order: of each 32 columns first the 16 even ones, then the 16 odd ones, which is how the
// nibbles of a block, and the halves of a pair of bf16, come out of a vector register.
constexpr std::int64_t split_position(std::int64_t col) {
  return col / 32 * 32 + col % 32 / 2 + col % 2 * 16;
}

// Widens a row to float32 in split order.
void split_row(const void* x, DType dtype, std::int32_t cols, float* out);

// sums[i, n] = sum_c x[i, c] * weight[n, c] with x in split order. Lane j of one vector sums the
// columns that lie at j modulo the lanes in split order, then the lanes are added: `cols` alone
// fixes the order. Weights of e2m1 are scaled before the product, which is exact.
void split_tile(const ExpertTile& tile);

struct ActivationLimits {
  float alpha = 0.0F;
  float limit = 0.0F;
};

// out[i] = (clamp(up) + 1) * g * sigmoid(alpha * g), g = min(gate, limit), of the pairs
// gate, up = sums[2 i], sums[2 i + 1], each plus its bias. All arrays are 64-byte aligned and hold
// `count` rounded up to a multiple of 16 outputs and twice as many inputs.
void activate(const float* sums, const float* bias, std::int32_t count, ActivationLimits limits,
              float* out);

}  // namespace nibble::kernels
