// e2m1: 4-bit float, 1 sign, 2 exponent, 1 mantissa bit, bias 1. Codes 0..7 are 0, 0.5, 1, 1.5, 2,
// 3, 4, 6; bit 3 is the sign, so code 8 is minus zero. No Inf, no NaN (OCP Microscaling Formats
// v1.0, section 5.3.3). docs/formats/e2m1.md.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace nibble::formats {

inline constexpr float kE2m1Max = 6.0F;

// Value of each code.
inline constexpr std::array<float, 16> kE2m1Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                                      4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                                      -2.0F, -3.0F, -4.0F, -6.0F};

// Reads the low 4 bits of `code`.
constexpr float e2m1_to_f32(std::uint8_t code) { return kE2m1Values[code & 0xFU]; }

// Nearest code, ties to the even code; magnitudes above 6 saturate to 6, Inf too. The sign of zero
// is kept. NaN has no code: it becomes +6, as in the satfinite conversion of sm_100. Callers that
// must not lose a NaN look for it first.
constexpr std::uint8_t f32_to_e2m1(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const float magnitude = std::bit_cast<float>(bits & 0x7FFFFFFFU);
  if (magnitude != magnitude) {
    return 7;
  }
  // The midpoint below an odd code belongs to the even code below it, the one below an even code
  // to that code.
  const int code = (magnitude > 0.25F) + (magnitude >= 0.75F) + (magnitude > 1.25F) +
                   (magnitude >= 1.75F) + (magnitude > 2.5F) + (magnitude >= 3.5F) +
                   (magnitude > 5.0F);
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(code) | (bits >> 31U << 3U));
}

// Two codes in a byte: the earlier element in the low nibble.
constexpr std::uint8_t e2m1_pack(std::uint8_t even, std::uint8_t odd) {
  return static_cast<std::uint8_t>((even & 0xFU) | (odd & 0xFU) << 4U);
}

// Code of element `index` of a packed row.
constexpr std::uint8_t e2m1_at(const std::uint8_t* packed, std::int64_t index) {
  return static_cast<std::uint8_t>(packed[index / 2] >> (index % 2 * 4) & 0xF);
}

static_assert(f32_to_e2m1(5.0F) == 6 && f32_to_e2m1(0.25F) == 0 && f32_to_e2m1(-0.75F) == 10);
static_assert(f32_to_e2m1(-0.0F) == 8 && f32_to_e2m1(1e30F) == 7);
static_assert(e2m1_pack(1, 0xF) == 0xF1);

}  // namespace nibble::formats
