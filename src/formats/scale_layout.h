// Where the scale of (row, block) lies. docs/formats/scale-layouts.md has the pictures.
//
//   linear    row * blocks + block
//   128x4     tiles of 128 rows x 4 blocks, 512 bytes each, tiles of one 128-row band side by side;
//             inside, 32 groups of 16 bytes: rows r, r + 32, r + 64, r + 96, four blocks each. What
//             tcgen05 block-scaled products of sm_100 read.
//   8x4       tiles of 8 rows x 4 blocks, 32 bytes each, row-major inside. For few rows.
//   hopper    per warp of a tile: a 4-byte read gives one lane the scales of rows c and c + 8 for
//             two consecutive blocks
//
// Sources of the rules: FlashInfer's scale-factor layouts, triton_kernels' Hopper and Blackwell
// scale layouts. Bytes at padded positions are 0.
#pragma once

#include <cstdint>

#include "formats/extent.h"

namespace nibble::formats {

enum class ScaleLayout : std::uint8_t { kLinear, k128x4, k8x4, kHopper };

// Number of scales along a row, before and after padding.
using LogicalBlocks = Extent<struct LogicalBlocksTag>;
using PaddedBlocks = Extent<struct PaddedBlocksTag>;

struct ScaleTile {
  std::int32_t rows = 1;
  std::int32_t blocks = 1;
};

// Warps that share a tile of the Hopper layout.
inline constexpr std::int32_t kHopperScaleWarps = 8;

// Both extents are padded to multiples of this.
constexpr ScaleTile scale_tile(ScaleLayout layout) {
  switch (layout) {
    case ScaleLayout::kLinear: return {1, 1};
    case ScaleLayout::k128x4: return {128, 4};
    case ScaleLayout::k8x4: return {8, 4};
    case ScaleLayout::kHopper: return {32 * kHopperScaleWarps, 2};
  }
  return {};
}

// Extents of one stored scale matrix.
struct ScaleExtent {
  PaddedRows rows;
  PaddedBlocks blocks;
  constexpr std::int64_t bytes() const { return rows.value * blocks.value; }
};

constexpr ScaleExtent scale_extent(ScaleLayout layout, LogicalRows rows, LogicalBlocks blocks) {
  const ScaleTile tile = scale_tile(layout);
  return {pad(rows, tile.rows), PaddedBlocks(round_up(blocks.value, tile.blocks))};
}

struct ScalePosition {
  std::int64_t row = 0;
  std::int64_t block = 0;
  friend constexpr bool operator==(ScalePosition, ScalePosition) = default;
};

constexpr std::int64_t scale_offset_128x4(ScalePosition at, PaddedBlocks blocks) {
  return at.row / 128 * 128 * blocks.value + at.block / 4 * 512 + at.row % 32 * 16 +
         at.row % 128 / 32 * 4 + at.block % 4;
}

constexpr ScalePosition scale_position_128x4(std::int64_t offset, PaddedBlocks blocks) {
  const std::int64_t band = 128 * blocks.value;
  const std::int64_t inside = offset % 512;
  return {offset / band * 128 + inside % 16 / 4 * 32 + inside / 16,
          offset % band / 512 * 4 + inside % 4};
}

constexpr std::int64_t scale_offset_8x4(ScalePosition at, PaddedBlocks blocks) {
  return at.row / 8 * 8 * blocks.value + at.block / 4 * 32 + at.row % 8 * 4 + at.block % 4;
}

constexpr ScalePosition scale_position_8x4(std::int64_t offset, PaddedBlocks blocks) {
  const std::int64_t band = 8 * blocks.value;
  const std::int64_t inside = offset % 32;
  return {offset / band * 8 + inside / 4, offset % band / 32 * 4 + inside % 4};
}

// With W warps, row = 32W g + 16W a + 16 w + 8 b + c and block = 2 q + d: stored in row gW + w of
// a matrix of 32 * blocks columns, at column 64 q + 32 a + 4 c + 2 d + b.
constexpr std::int64_t scale_offset_hopper(ScalePosition at, PaddedBlocks blocks) {
  constexpr std::int64_t kWarps = kHopperScaleWarps;
  const std::int64_t tile = at.row / (32 * kWarps);
  const std::int64_t half = at.row / (16 * kWarps) % 2;
  const std::int64_t warp = at.row / 16 % kWarps;
  const std::int64_t column =
      at.block / 2 * 64 + half * 32 + at.row % 8 * 4 + at.block % 2 * 2 + at.row / 8 % 2;
  return (tile * kWarps + warp) * 32 * blocks.value + column;
}

constexpr ScalePosition scale_position_hopper(std::int64_t offset, PaddedBlocks blocks) {
  constexpr std::int64_t kWarps = kHopperScaleWarps;
  const std::int64_t stored_row = offset / (32 * blocks.value);
  const std::int64_t column = offset % (32 * blocks.value);
  return {stored_row / kWarps * 32 * kWarps + column / 32 % 2 * 16 * kWarps +
              stored_row % kWarps * 16 + column % 2 * 8 + column / 4 % 8,
          column / 64 * 2 + column / 2 % 2};
}

// Byte of (row, block) in a stored matrix with `blocks` padded blocks a row.
constexpr std::int64_t scale_offset(ScaleLayout layout, ScalePosition at, PaddedBlocks blocks) {
  switch (layout) {
    case ScaleLayout::kLinear: return at.row * blocks.value + at.block;
    case ScaleLayout::k128x4: return scale_offset_128x4(at, blocks);
    case ScaleLayout::k8x4: return scale_offset_8x4(at, blocks);
    case ScaleLayout::kHopper: return scale_offset_hopper(at, blocks);
  }
  return 0;
}

// Inverse of scale_offset.
constexpr ScalePosition scale_position(ScaleLayout layout, std::int64_t offset,
                                       PaddedBlocks blocks) {
  switch (layout) {
    case ScaleLayout::kLinear: return {offset / blocks.value, offset % blocks.value};
    case ScaleLayout::k128x4: return scale_position_128x4(offset, blocks);
    case ScaleLayout::k8x4: return scale_position_8x4(offset, blocks);
    case ScaleLayout::kHopper: return scale_position_hopper(offset, blocks);
  }
  return {};
}

static_assert(scale_offset(ScaleLayout::k128x4, {33, 5}, PaddedBlocks(8)) == 512 + 16 + 4 + 1);
static_assert(scale_offset(ScaleLayout::k8x4, {9, 5}, PaddedBlocks(8)) == 64 + 32 + 4 + 1);
static_assert(scale_offset(ScaleLayout::kHopper, {8, 1}, PaddedBlocks(2)) == 3);

}  // namespace nibble::formats
