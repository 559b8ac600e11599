// IEEE 754 binary16: 1 sign, 5 exponent, 10 mantissa bits, bias 15.
#pragma once

#include <bit>
#include <cstdint>

namespace nibble::formats {

// Storage type; arithmetic happens in float32.
struct F16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(F16, F16) = default;
};
static_assert(sizeof(F16) == 2);

inline constexpr float kF16Max = 65504.0F;

// Exact. A NaN keeps its sign and payload, made quiet.
constexpr float f16_to_f32(F16 value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16U;
  const std::uint32_t magnitude = value.bits & 0x7FFFU;
  if (magnitude > 0x7C00U) {
    return std::bit_cast<float>(sign | 0x7FC00000U | (magnitude & 0x3FFU) << 13U);
  }
  if (magnitude == 0x7C00U) {
    return std::bit_cast<float>(sign | 0x7F800000U);
  }
  if (magnitude < 0x400U) {  // subnormal: multiples of 2^-24
    const float number = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(number) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 13U) + ((127U - 15U) << 23U)));
}

// Rounds to nearest, ties to even; overflow gives Inf; a NaN stays a NaN (made quiet, sign kept).
constexpr F16 f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t sign = bits >> 31U << 15U;
  std::uint32_t code = 0x7C00U;
  if (magnitude > 0x7F800000U) {
    code = 0x7E00U | (magnitude >> 13U & 0x3FFU);
  } else if (magnitude < 0x38800000U) {
    // Below 2^-14 codes step by 2^-24, one unit in the last place of 0.5: let the adder round.
    code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
           std::bit_cast<std::uint32_t>(0.5F);
  } else if (magnitude < 0x477FF000U) {  // below 65520, which is halfway to 2^16
    code = ((magnitude + 0xFFFU + (magnitude >> 13U & 1U)) >> 13U) - ((127U - 15U) << 10U);
  }
  return {static_cast<std::uint16_t>(code | sign)};
}

static_assert(f32_to_f16(65519.996F).bits == 0x7BFFU && f32_to_f16(65520.0F).bits == 0x7C00U);
static_assert(f32_to_f16(0x1p-25F).bits == 0 && f32_to_f16(0x1.8p-25F).bits == 1);
static_assert(f16_to_f32({0x0001U}) == 0x1p-24F);

}  // namespace nibble::formats
