// How the shared scale of a block is chosen from the largest magnitude in it (`amax`).
//
// With M the largest magnitude of the element format and 2^e its largest power of two (e2m1: M = 6,
// e = 2; e4m3: M = 448, e = 8), the power-of-two scale of a block is
//
//   up          2^ceil(log2(amax / M))          nothing saturates (triton_kernels' rule)
//   OCP floor   2^(floor(log2(amax)) - e)       amax above M * 2^k saturates (OCP MX v1.0, 6.3)
//
// clamped to 2^-127 from below. Both are computed on the bits of amax, exactly: for a float
// mantissa, amax <= M * 2^k is a comparison of mantissas. docs/formats/block-scales.md proves which
// blocks come back exactly.
#pragma once

#include <bit>
#include <cstdint>

#include "formats/ue8m0.h"

namespace nibble::formats {

enum class ScaleRounding : std::uint8_t {
  kUp,           // least scale that saturates nothing
  kLeastError,   // of two candidates the one with the smaller squared error over the block
  kOcpFloor,     // ue8m0 only: the rule of the OCP specification
  kNearestEven,  // e4m3 only: nearest scale, ties to even
};

// Largest finite value of an element format: (1 + max_mantissa / 2^23) * 2^max_exponent.
struct ElementRange {
  std::int32_t max_exponent = 0;
  std::uint32_t max_mantissa = 0;
};
inline constexpr ElementRange kE2m1Range = {2, 0x00400000U};  // 6 = 1.5 * 2^2
inline constexpr ElementRange kE4m3Range = {8, 0x00600000U};  // 448 = 1.75 * 2^8

// `amax` is finite and not negative.
constexpr std::uint8_t mx_scale(float amax, ElementRange range, bool is_rounding_up) {
  const auto bits = std::bit_cast<std::uint32_t>(amax);
  const std::uint32_t carry = is_rounding_up ? 0x007FFFFFU - range.max_mantissa : 0U;
  const auto code = static_cast<std::int32_t>((bits + carry) >> 23U) - range.max_exponent;
  return static_cast<std::uint8_t>(code < 0 ? 0 : code);
}

static_assert(mx_scale(6.0F, kE2m1Range, true) == 127 && mx_scale(4.0F, kE2m1Range, true) == 127);
static_assert(mx_scale(6.0000005F, kE2m1Range, true) == 128);
static_assert(mx_scale(7.9F, kE2m1Range, false) == 127 && mx_scale(3.9F, kE2m1Range, false) == 126);
static_assert(mx_scale(448.0F, kE4m3Range, true) == 127);
static_assert(mx_scale(3.4e38F, kE2m1Range, true) == 253 && mx_scale(0.0F, kE2m1Range, true) == 0);

}  // namespace nibble::formats
