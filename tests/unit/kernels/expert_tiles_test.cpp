// Expert tiles: maps against the fragments that the PTX manual draws, exact decode, inverse.
#include "kernels/convert/expert_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "formats/bf16.h"
#include "formats/mxfp4.h"

namespace nibble::kernels {
namespace {

using formats::LogicalCols;
using formats::LogicalRows;

struct Rows {
  Rows(std::int64_t num_rows, std::int64_t num_cols, int low, int high)
      : rows(num_rows),
        cols(num_cols),
        blocks(static_cast<std::size_t>(rows * cols / 2)),
        scales(static_cast<std::size_t>(rows * cols / 32)) {
    std::mt19937 random(static_cast<unsigned>(rows * 1000 + cols));
    for (std::uint8_t& byte : blocks) {
      byte = static_cast<std::uint8_t>(random());
    }
    std::uniform_int_distribution<int> scale(low, high);
    for (std::uint8_t& byte : scales) {
      byte = static_cast<std::uint8_t>(scale(random));
    }
  }
  ExpertRowsView view() const {
    return {blocks.data(), scales.data(), LogicalRows(rows), LogicalCols(cols)};
  }
  double value(std::int64_t row, std::int64_t col) const {
    const auto code = formats::e2m1_at(blocks.data() + row * cols / 2, col);
    const std::uint8_t scale = scales[static_cast<std::size_t>(row * (cols / 32) + col / 32)];
    return std::ldexp(double{formats::e2m1_to_f32(code)}, scale - 127);
  }

  std::int64_t rows;
  std::int64_t cols;
  std::vector<std::uint8_t> blocks;
  std::vector<std::uint8_t> scales;
};

struct Tiles {
  explicit Tiles(const Rows& from)
      : extent(formats::expert_tile_extent(LogicalRows(from.rows), LogicalCols(from.cols))),
        values(static_cast<std::size_t>(extent.value_bytes()), 0xAA),
        scales(static_cast<std::size_t>(extent.scale_bytes()), 0xAA),
        exponent(pack_expert_tiles(from.view(), {values.data(), scales.data()})) {}
  formats::ExpertTileExtent extent;
  std::vector<std::uint8_t> values;
  std::vector<std::uint8_t> scales;
  Result<std::int32_t> exponent;
};

constexpr std::pair<std::int64_t, std::int64_t> kSizes[] = {
    {1, 32}, {15, 64}, {16, 96}, {17, 160}, {48, 2880}};

TEST(ExpertTiles, MapsAreBijections) {
  for (const auto& [rows, cols] : kSizes) {
    const auto extent = formats::expert_tile_extent(LogicalRows(rows), LogicalCols(cols));
    for (std::int64_t nibble = 0; nibble < extent.value_bytes() * 2; ++nibble) {
      const auto at = formats::expert_value_position(nibble, extent);
      ASSERT_EQ(formats::expert_value_offset(at, extent), nibble);
    }
    for (std::int64_t byte = 0; byte < extent.scale_bytes(); ++byte) {
      const auto at = formats::expert_scale_position(byte, extent);
      ASSERT_EQ(formats::expert_scale_offset(at.row, at.block, extent), byte);
    }
  }
}

// Register j, half e of lane 4 g + t in a 16 x 16 left fragment is row g + 8 (j % 2), column
// 2 t + 8 (j / 2) + e; rows g and g + 8 are rows 2 g and 2 g + 1 of the band. Decoded as the
// kernels do: shifts, masks, one bf16 product, 2^exponent at the end.
TEST(ExpertTiles, LanesHoldTheirFragmentsExactly) {
  const Rows rows(32, 192, 90, 140);
  const Tiles tiles(rows);
  ASSERT_TRUE(tiles.exponent.has_value());
  for (std::int64_t word_at = 0; word_at < tiles.extent.value_bytes() / 4; ++word_at) {
    std::uint32_t word = 0;
    std::memcpy(&word, tiles.values.data() + word_at * 4, 4);
    const std::int64_t chunk = word_at / 128;
    const std::int64_t lane = word_at / 4 % 32;
    const std::int64_t k16 = word_at % 4;
    const std::uint32_t registers[4] = {
        word & 0x81C081C0U, word << 3U & 0x81C081C0U, word << 6U & 0x81C081C0U,
        (word << 1U & 0x80008000U) | (word >> 3U & 0x01800180U) | (word >> 7U & 0x00400040U)};
    for (std::int64_t j = 0; j < 4; ++j) {
      for (std::int64_t e = 0; e < 2; ++e) {
        const std::int64_t row = chunk / tiles.extent.chunks * 16 + lane / 4 * 2 + j % 2;
        const std::int64_t col =
            chunk % tiles.extent.chunks * 64 + k16 * 16 + lane % 4 * 2 + j / 2 * 8 + e;
        const formats::Bf16 raw{static_cast<std::uint16_t>(registers[j] >> (16 * e))};
        const std::uint8_t byte =
            tiles.scales[static_cast<std::size_t>(chunk * 32 + lane / 4 * 4 + k16 / 2 * 2 + j % 2)];
        const float factor = formats::bf16_to_f32({static_cast<std::uint16_t>(byte << 7U)});
        const float weight = formats::bf16_to_f32(raw) * factor;
        ASSERT_EQ(formats::bf16_to_f32(formats::f32_to_bf16(weight)), weight);
        ASSERT_EQ(std::ldexp(double{weight}, *tiles.exponent), rows.value(row, col))
            << row << " " << col;
      }
    }
  }
}

TEST(ExpertTiles, UnpackGivesTheSameBytes) {
  for (const auto& [num_rows, cols] : kSizes) {
    const Rows rows(num_rows, cols, 100, 233);
    const Tiles tiles(rows);
    ASSERT_TRUE(tiles.exponent.has_value());
    std::vector<std::uint8_t> blocks(rows.blocks.size());
    std::vector<std::uint8_t> scales(rows.scales.size());
    unpack_expert_tiles({tiles.values.data(), tiles.scales.data(), *tiles.exponent,
                         LogicalRows(num_rows), LogicalCols(cols)},
                        blocks.data(), scales.data());
    EXPECT_EQ(blocks, rows.blocks);
    EXPECT_EQ(scales, rows.scales);
  }
}

TEST(ExpertTiles, PaddingIsZero) {
  const Tiles tiles(Rows(1, 32, 127, 127));
  const auto set = [](const std::vector<std::uint8_t>& bytes) {
    return std::count_if(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte != 0; });
  };
  EXPECT_LE(set(tiles.values), 32);  // 16 words with 2 codes each
  EXPECT_EQ(set(tiles.scales), 1);
}

TEST(ExpertTiles, ExtremeScalesRoundTripOrAreRefused) {
  Rows rows(16, 64, 120, 120);
  rows.scales[3] = 254;
  rows.scales[5] = 121;  // 133 below the largest: the last that fits
  for (std::uint8_t& scale : rows.scales) {
    scale = std::max<std::uint8_t>(scale, 121);
  }
  EXPECT_TRUE(Tiles(rows).exponent.has_value());
  rows.scales[5] = 120;
  const Tiles refused(rows);
  ASSERT_FALSE(refused.exponent.has_value());
  EXPECT_EQ(refused.exponent.error().message(),
            "expert tiles: want the scales of an expert within 133 powers of two, got bytes 120 "
            "and 254");
  std::fill_n(&rows.blocks[80], 16, std::uint8_t{0x80});  // zeros of either sign
  EXPECT_TRUE(Tiles(rows).exponent.has_value());
  rows.scales[0] = 255;
  EXPECT_FALSE(Tiles(rows).exponent.has_value());
}

}  // namespace
}  // namespace nibble::kernels
