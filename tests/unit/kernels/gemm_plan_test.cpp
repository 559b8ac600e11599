#include "kernels/gemm/gemm_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace nibble::kernels {
namespace {

GemmTileSize tile(std::int32_t rows, const std::vector<std::int32_t>& widths) {
  std::vector<GemmPart> parts;
  parts.reserve(widths.size());
  for (const std::int32_t n : widths) {
    parts.push_back({.n = n});
  }
  return gemm_tile_size(rows, parts, 132);
}

TEST(GemmPlan, FewTilesAreSmall) {
  EXPECT_EQ(tile(65, {32}), (GemmTileSize{64, 32}));
  EXPECT_EQ(tile(256, {128}), (GemmTileSize{64, 32}));
  EXPECT_EQ(tile(128, {2880}), (GemmTileSize{128, 32}));  // 90 tiles; halved they take two waves
  EXPECT_EQ(tile(256, {2880}), (GemmTileSize{128, 64}));
  EXPECT_EQ(tile(256, {4096, 512, 512}), (GemmTileSize{128, 96}));  // 110 tiles in one wave
}

TEST(GemmPlan, ManyTilesAreWide) {
  EXPECT_EQ(tile(8192, {4096, 512, 512}), (GemmTileSize{128, 256}));
  EXPECT_EQ(tile(8192, {2880}), (GemmTileSize{128, 256}));
  EXPECT_EQ(tile(128, {201088}), (GemmTileSize{128, 256}));
}

TEST(GemmPlan, AWidthThatFillsTheLastWaveBetterWins) {
  // 192: 15 x 8 = 120 tiles, one wave; 256: 96 tiles, one longer wave; 128: 184 tiles, two waves.
  EXPECT_EQ(tile(1024, {2880}), (GemmTileSize{128, 192}));
}

}  // namespace
}  // namespace nibble::kernels
