// ue8m0: a power-of-two scale in one byte, 2^(byte - 127). Byte 0 is 2^-127 (a float32 subnormal),
// byte 255 is NaN (OCP Microscaling Formats v1.0, section 5.4.1).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace nibble::formats {

inline constexpr std::uint8_t kUe8m0NaN = 255;

constexpr float ue8m0_to_f32(std::uint8_t code) {
  if (code == kUe8m0NaN) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  // 2^-127 has no exponent field of its own: it is half the smallest normal.
  const std::uint32_t bits = code == 0 ? 0x00400000U : static_cast<std::uint32_t>(code) << 23U;
  return std::bit_cast<float>(bits);
}

}  // namespace nibble::formats
