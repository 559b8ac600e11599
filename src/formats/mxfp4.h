// MXFP4: 32 e2m1 values that share one ue8m0 scale (OCP Microscaling Formats v1.0), as published
// checkpoints store it: byte b of a block holds value 2b in its low nibble and value 2b + 1 in its
// high nibble; scales are a tensor of their own. docs/formats/mxfp4.md has the byte diagram.
#pragma once

#include <array>
#include <cstdint>

#include "formats/block_scale.h"
#include "formats/e2m1.h"
#include "formats/ue8m0.h"

namespace nibble::formats {

inline constexpr std::int32_t kMxfp4BlockElems = 32;
inline constexpr std::int32_t kMxfp4BlockBytes = kMxfp4BlockElems / 2;

struct Mxfp4Block {
  std::array<std::uint8_t, kMxfp4BlockBytes> codes{};
  std::uint8_t scale = 0;
  friend constexpr bool operator==(const Mxfp4Block&, const Mxfp4Block&) = default;
};
static_assert(sizeof(Mxfp4Block) == 17);

// Value `index` of a block. Exact in float32, except that magnitudes of 2^128 and more (scale 254
// with codes from 2 up, scale 253 with codes 4 and 6) are Inf. Scale 255 makes every value NaN.
constexpr float mxfp4_value(const Mxfp4Block& block, std::int32_t index) {
  return e2m1_to_f32(e2m1_at(block.codes.data(), index)) * ue8m0_to_f32(block.scale);
}

}  // namespace nibble::formats
