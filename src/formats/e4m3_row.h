// A row of e4m3 codes with one power-of-two scale: the keys or the values of one head at one
// position, in a cache of 8 bits.
//
//   value = e4m3(code) * 2^(scale - 127)
//
// The scale is the least at which nothing saturates (block_scale.h, "up"), and no less than 2^-100,
// so that bf16 holds every such value exactly. A value x of a row whose largest magnitude is amax
// comes back within max(2^-4 |x|, 2^-17 amax), or 2^-110 where amax is below 2^-92. A row that
// holds a NaN or an infinity gets the NaN scale and comes back as NaN throughout.
#pragma once

#include <cstdint>

#include "formats/block_scale.h"
#include "formats/e4m3.h"
#include "formats/ue8m0.h"

namespace nibble::formats {

inline constexpr std::uint8_t kLeastRowScale = 127 - 100;

// `amax`: the largest magnitude of the row's finite elements.
constexpr std::uint8_t e4m3_row_scale(float amax, bool is_finite) {
  if (!is_finite) {
    return kUe8m0NaN;
  }
  const std::uint8_t scale = mx_scale(amax, kE4m3Range, true);
  return scale < kLeastRowScale ? kLeastRowScale : scale;
}

constexpr std::uint8_t e4m3_row_code(float value, std::uint8_t scale) {
  return scale == kUe8m0NaN ? kE4m3NaN : f32_to_e4m3(value * ue8m0_reciprocal(scale));
}

constexpr float e4m3_row_value(std::uint8_t code, std::uint8_t scale) {
  return e4m3_to_f32(code) * ue8m0_to_f32(scale);
}

static_assert(e4m3_row_scale(448.0F, true) == 127 && e4m3_row_scale(449.0F, true) == 128);
static_assert(e4m3_row_scale(0.0F, true) == kLeastRowScale);
static_assert(e4m3_row_value(e4m3_row_code(-3.25F, 120), 120) == -3.25F);

}  // namespace nibble::formats
