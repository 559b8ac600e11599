// Expert tiles: how MXFP4 expert weights lie in GPU memory for products that take the weight from
// registers (mma.sync m16n8k16 and wgmma m64k16 read the same fragment of 16 rows x 16 columns).
//
//   values  [bands][chunks][32 lanes][16 bytes]   band: 16 rows, chunk: 64 columns
//   scales  [bands][chunks][8][4 bytes]
//
// Rows 16 b + 2 g and 16 b + 2 g + 1 are rows g and g + 8 of fragment band b, so one lane holds a
// gate row and its up row, or two neighbours of an output. Lane 4 g + t has four words, one for
// each 16 columns; byte j of a word, before packing, has columns 2 t and 2 t + 1 (low nibble first)
// of half j / 2 and row j % 2. Words are then packed as in value_layout.h (hopper_pack_word).
// A band is one contiguous stretch, so a stream of bands reads memory in order; nothing is padded
// but rows to 16 and columns to 64.
//
// Scales are rebased for each expert: byte = scale + 126 - exponent with exponent = largest - 128,
// so that byte << 7 is the bf16 factor that takes a packed value (e2m1 * 2^-126) to
// e2m1 * 2^(scale - 127 - exponent); 2^exponent multiplies the sum. Exact while the scales of one
// expert span at most kExpertScaleSpan powers of two. Padding has code 0 and byte 0.
#pragma once

#include <cstdint>

#include "formats/value_layout.h"

namespace nibble::formats {

inline constexpr std::int32_t kBandRows = 16;
inline constexpr std::int32_t kChunkCols = 64;
inline constexpr std::int32_t kChunkValueBytes = kBandRows * kChunkCols / 2;
inline constexpr std::int32_t kChunkScaleBytes = kBandRows * kChunkCols / 32;
// Bytes 121..254: the smallest product, 0.5 * 2^(121 - 253), is the least bf16 subnormal times 2^0.
inline constexpr std::int32_t kExpertScaleSpan = 254 - 121;

// Extents of one expert's matrix.
struct ExpertTileExtent {
  std::int64_t bands = 0;
  std::int64_t chunks = 0;
  constexpr std::int64_t value_bytes() const { return bands * chunks * kChunkValueBytes; }
  constexpr std::int64_t scale_bytes() const { return bands * chunks * kChunkScaleBytes; }
};

constexpr ExpertTileExtent expert_tile_extent(LogicalRows rows, LogicalCols cols) {
  return {(rows.value + kBandRows - 1) / kBandRows, (cols.value + kChunkCols - 1) / kChunkCols};
}

// Nibble of (row, col) before its word is packed.
constexpr std::int64_t expert_value_offset(ValuePosition at, ExpertTileExtent extent) {
  const std::int64_t chunk = at.row / kBandRows * extent.chunks + at.col / kChunkCols;
  const std::int64_t lane = at.row % kBandRows / 2 * 4 + at.col % 8 / 2;
  const std::int64_t byte = at.col % 16 / 8 * 2 + at.row % 2;
  return (chunk * kChunkValueBytes + lane * 16 + at.col % kChunkCols / 16 * 4 + byte) * 2 +
         at.col % 2;
}

constexpr ValuePosition expert_value_position(std::int64_t nibble, ExpertTileExtent extent) {
  const std::int64_t byte = nibble / 2 % kChunkValueBytes;
  const std::int64_t chunk = nibble / 2 / kChunkValueBytes;
  const std::int64_t lane = byte / 16;
  return {chunk / extent.chunks * kBandRows + lane / 4 * 2 + byte % 2,
          chunk % extent.chunks * kChunkCols + byte / 4 % 4 * 16 + byte / 2 % 2 * 8 + lane % 4 * 2 +
              nibble % 2};
}

// Byte of the scale of (row, block of 32 columns).
constexpr std::int64_t expert_scale_offset(std::int64_t row, std::int64_t block,
                                           ExpertTileExtent extent) {
  const std::int64_t chunk = row / kBandRows * extent.chunks + block / 2;
  return chunk * kChunkScaleBytes + row % kBandRows / 2 * 4 + block % 2 * 2 + row % 2;
}

struct ExpertScalePosition {
  std::int64_t row = 0;
  std::int64_t block = 0;
  friend constexpr bool operator==(ExpertScalePosition, ExpertScalePosition) = default;
};

constexpr ExpertScalePosition expert_scale_position(std::int64_t offset, ExpertTileExtent extent) {
  const std::int64_t chunk = offset / kChunkScaleBytes;
  const std::int64_t byte = offset % kChunkScaleBytes;
  return {chunk / extent.chunks * kBandRows + byte / 4 * 2 + byte % 2,
          chunk % extent.chunks * 2 + byte / 2 % 2};
}

static_assert(expert_value_offset({1, 8}, {1, 1}) == 6);
static_assert(expert_scale_offset(2, 1, {1, 1}) == 6);

}  // namespace nibble::formats
