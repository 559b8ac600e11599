// bfloat16: the upper half of an IEEE float32.
#pragma once

#include <bit>
#include <cstdint>

namespace nibble::formats {

// Storage type; arithmetic happens in float32.
struct Bf16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(Bf16, Bf16) = default;
};
static_assert(sizeof(Bf16) == 2);

constexpr float bf16_to_f32(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

// Rounds to nearest, ties to even; overflow gives Inf; a NaN stays a NaN (made quiet, sign kept).
constexpr Bf16 f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return {static_cast<std::uint16_t>((bits >> 16U) | 0x0040U)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U)};
}

}  // namespace nibble::formats
