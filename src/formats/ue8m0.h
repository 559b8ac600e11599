// ue8m0: a power-of-two scale in one byte, 2^(byte - 127). Byte 0 is 2^-127 (a float32 subnormal),
// byte 255 is NaN (OCP Microscaling Formats v1.0, section 5.4.1).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace nibble::formats {

inline constexpr std::uint8_t kUe8m0NaN = 255;
inline constexpr std::uint8_t kUe8m0Max = 254;

constexpr float ue8m0_to_f32(std::uint8_t code) {
  if (code == kUe8m0NaN) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  // 2^-127 has no exponent field of its own: it is half the smallest normal.
  const std::uint32_t bits = code == 0 ? 0x00400000U : static_cast<std::uint32_t>(code) << 23U;
  return std::bit_cast<float>(bits);
}

// 1 / ue8m0_to_f32(code), exact for every code but NaN.
constexpr float ue8m0_reciprocal(std::uint8_t code) {
  return ue8m0_to_f32(code == kUe8m0NaN ? code : static_cast<std::uint8_t>(254 - code));
}

enum class Ue8m0Rounding : std::uint8_t {
  kUp,       // least power >= value
  kDown,     // greatest power <= value
  kNearest,  // nearer in value; halfway (1.5 times a power) goes up
};

// Powers outside the format are clamped to 2^-127 and 2^127; so 0 gives byte 0. Negative values,
// Inf and NaN give the NaN byte.
constexpr std::uint8_t f32_to_ue8m0(float value, Ue8m0Rounding rounding) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (bits == 0x80000000U) {
    return 0;
  }
  if (bits >= 0x7F800000U) {
    return kUe8m0NaN;
  }
  if (bits < 0x00800000U) {  // subnormal: 2^-127 is 0x00400000, 2^-126 comes next
    const bool is_above = rounding == Ue8m0Rounding::kUp        ? bits > 0x00400000U
                          : rounding == Ue8m0Rounding::kNearest ? bits >= 0x00600000U
                                                                : false;
    return is_above ? 1 : 0;
  }
  const std::uint32_t mantissa = bits & 0x007FFFFFU;
  const bool is_above = rounding == Ue8m0Rounding::kUp        ? mantissa != 0
                        : rounding == Ue8m0Rounding::kNearest ? mantissa >= 0x00400000U
                                                              : false;
  const std::uint32_t code = (bits >> 23U) + (is_above ? 1U : 0U);
  return static_cast<std::uint8_t>(code > kUe8m0Max ? kUe8m0Max : code);
}

static_assert(f32_to_ue8m0(1.0F, Ue8m0Rounding::kUp) == 127);
static_assert(f32_to_ue8m0(1.25F, Ue8m0Rounding::kUp) == 128);
static_assert(f32_to_ue8m0(1.25F, Ue8m0Rounding::kNearest) == 127);
static_assert(f32_to_ue8m0(0.0F, Ue8m0Rounding::kDown) == 0);

}  // namespace nibble::formats
