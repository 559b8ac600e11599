// What sampling does over a whole row of logits: plain loops that the compiler turns into vectors,
// once for each instruction set, in an order of operations that is the same whatever the vectors'
// width, so that the bits are too. No operation is fused (-ffp-contract=off).
#pragma once

#include <cstdint>
#include <span>

namespace nibble::kernels {

// Index of the largest value, the smaller on ties (-0 equals 0); -1 when there is a NaN or nothing
// above -inf.
std::int32_t row_largest(std::span<const float> row);

// out[i] = exp((row[i] - largest) / temperature) for finite `largest` >= row[i] and temperature >
// 0, within 4 units of 2^-24 of the exponential of that float32 quotient; 0 where the quotient is
// below -87, which is less than any draw of 24 bits can meet. `out` [row.size()] may not overlap
// `row`.
void row_weights(std::span<const float> row, float largest, float temperature,
                 std::span<float> out);

// Sum in double.
double row_sum(std::span<const float> row);

// The first index at which the sum so far exceeds `target`, counting values above 0 only; the last
// of those when none does. 0 when there is none.
std::int32_t row_first_above(std::span<const float> row, double target);

}  // namespace nibble::kernels
