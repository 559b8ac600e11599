// e2m1: 4-bit float, 1 sign, 2 exponent, 1 mantissa bit, bias 1. Codes 0..7 are 0, 0.5, 1, 1.5, 2,
// 3, 4, 6; bit 3 is the sign, so code 8 is minus zero. No Inf, no NaN (OCP Microscaling Formats
// v1.0, section 5.3.3).
#pragma once

#include <array>
#include <cstdint>

namespace nibble::formats {

inline constexpr float kE2m1Max = 6.0F;

// Value of each code.
inline constexpr std::array<float, 16> kE2m1Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                                      4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                                      -2.0F, -3.0F, -4.0F, -6.0F};

// Reads the low 4 bits of `code`.
constexpr float e2m1_to_f32(std::uint8_t code) { return kE2m1Values[code & 0xFU]; }

}  // namespace nibble::formats
