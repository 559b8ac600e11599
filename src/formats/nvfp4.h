// NVFP4: 16 e2m1 values that share one e4m3 scale (never negative), under a float32 scale of the
// whole tensor or expert:
//
//   value = e2m1 * (e4m3 * global)
//
// Nibbles are packed as in MXFP4. docs/formats/nvfp4.md: byte diagram, scale rules, checkpoint.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "formats/e2m1.h"
#include "formats/e4m3.h"

namespace nibble::formats {

inline constexpr std::int32_t kNvfp4BlockElems = 16;
inline constexpr std::int32_t kNvfp4BlockBytes = kNvfp4BlockElems / 2;

struct Nvfp4Block {
  std::array<std::uint8_t, kNvfp4BlockBytes> codes{};
  std::uint8_t scale = 0;
  friend constexpr bool operator==(const Nvfp4Block&, const Nvfp4Block&) = default;
};
static_assert(sizeof(Nvfp4Block) == 9);

// Step of a block: the product of its two scales, rounded once to float32.
constexpr float nvfp4_step(std::uint8_t scale, float global) { return e4m3_to_f32(scale) * global; }

constexpr float nvfp4_value(const Nvfp4Block& block, std::int32_t index, float global) {
  return e2m1_to_f32(e2m1_at(block.codes.data(), index)) * nvfp4_step(block.scale, global);
}

// amax / (6 * 448): the global scale under which the largest block scale is the largest e4m3.
// An all-zero tensor has global scale 1.
constexpr float nvfp4_global_scale(float amax) {
  const float scale = amax / (kE2m1Max * kE4m3Max);
  return scale > 0.0F ? scale : 1.0F;
}

// The least power of two at or above amax / 1024, at least 2^-126: the largest magnitude of any
// block can be put on code 4 or 6 under a scale of at most 256. Multiplying and dividing by it is
// exact, and e4m3 keeps its relative precision: what MXFP4 holds comes over exactly (rounding
// kLeastError) while the largest and the smallest block maximum are within a factor of 2^16.
constexpr float nvfp4_global_scale_pow2(float amax) {
  if (!(amax > 0.0F)) {
    return 1.0F;
  }
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(amax);
  const auto field = static_cast<std::int32_t>((bits + 0x007FFFFFU) >> 23U) - 10;
  return std::bit_cast<float>(static_cast<std::uint32_t>(field < 1 ? 1 : field) << 23U);
}

static_assert(nvfp4_global_scale(2688.0F) == 1.0F && nvfp4_global_scale(0.0F) == 1.0F);
static_assert(nvfp4_global_scale_pow2(1024.0F) == 1.0F);
static_assert(nvfp4_global_scale_pow2(1025.0F) == 2.0F);

}  // namespace nibble::formats
