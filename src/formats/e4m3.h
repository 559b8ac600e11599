// e4m3 ("fn" variant): 8-bit float, 1 sign, 4 exponent, 3 mantissa bits, bias 7. Largest finite
// magnitude 448 (0x7E); 0x7F and 0xFF are NaN; there is no Inf (OCP 8-bit Floating Point
// Specification v1.0, table 1).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace nibble::formats {

inline constexpr float kE4m3Max = 448.0F;
inline constexpr std::uint8_t kE4m3NaN = 0x7F;
inline constexpr std::uint8_t kE4m3MaxCode = 0x7E;

constexpr float e4m3_to_f32(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80U) << 24U;
  const std::uint32_t magnitude = code & 0x7FU;
  if (magnitude == kE4m3NaN) {
    return std::bit_cast<float>(sign | 0x7FC00000U);
  }
  if (magnitude < 8U) {  // subnormal: multiples of 2^-9
    const float value = static_cast<float>(magnitude) * 0x1p-9F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 20U) + ((127U - 7U) << 23U)));
}

// Rounds to nearest, ties to even; magnitudes above 448 saturate, Inf too. NaN gives NaN, sign
// kept.
constexpr std::uint8_t f32_to_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t sign = bits >> 31U << 7U;
  std::uint32_t code = kE4m3MaxCode;
  if (magnitude > 0x7F800000U) {
    code = kE4m3NaN;
  } else if (magnitude < 0x3C800000U) {
    // Below 2^-6 codes step by 2^-9, which is one unit in the last place of 2^14: let the adder
    // round.
    code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14F) -
           std::bit_cast<std::uint32_t>(0x1p14F);
  } else if (magnitude < 0x43E00000U) {
    code = ((magnitude + 0x7FFFFU + (magnitude >> 20U & 1U)) >> 20U) - ((127U - 7U) << 3U);
  }
  return static_cast<std::uint8_t>(code | sign);
}

// Least code whose value is at or above `value` >= 0; above 448 saturates. NaN gives NaN.
constexpr std::uint8_t f32_to_e4m3_up(float value) {
  const std::uint8_t nearest = f32_to_e4m3(value);
  const bool is_below = nearest < kE4m3MaxCode && e4m3_to_f32(nearest) < value;
  return static_cast<std::uint8_t>(nearest + (is_below ? 1 : 0));
}

static_assert(e4m3_to_f32(0x7E) == 448.0F && e4m3_to_f32(0x01) == 0x1p-9F);
static_assert(f32_to_e4m3(464.0F) == 0x7E && f32_to_e4m3(-1e30F) == 0xFE);
static_assert(f32_to_e4m3(0x1p-10F) == 0 && f32_to_e4m3(0x1.8p-9F) == 2);
static_assert(f32_to_e4m3_up(0x1p-20F) == 1 && f32_to_e4m3_up(448.0F) == 0x7E);

}  // namespace nibble::formats
