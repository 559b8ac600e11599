#include "kernels/gemm/gemm_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace nibble::kernels {
namespace {

std::int32_t tile_n(std::int32_t rows, const std::vector<std::int32_t>& widths) {
  std::vector<GemmPart> parts;
  parts.reserve(widths.size());
  for (const std::int32_t n : widths) {
    parts.push_back({.n = n});
  }
  return gemm_tile_n(rows, parts, 132);
}

TEST(GemmPlan, FewTilesAreNarrow) {
  EXPECT_EQ(tile_n(65, {32}), 128);
  EXPECT_EQ(tile_n(4096, {32}), 128);
  EXPECT_EQ(tile_n(256, {4096, 512, 512}), 128);  // 80 tiles in one wave
}

TEST(GemmPlan, ManyTilesAreWide) {
  EXPECT_EQ(tile_n(8192, {4096, 512, 512}), 256);
  EXPECT_EQ(tile_n(8192, {2880}), 256);
  EXPECT_EQ(tile_n(128, {201088}), 256);
}

TEST(GemmPlan, AWidthThatFillsTheLastWaveBetterWins) {
  // 192: 15 x 8 = 120 tiles, one wave; 256: 96 tiles, one longer wave; 128: 184 tiles, two waves.
  EXPECT_EQ(tile_n(1024, {2880}), 192);
}

}  // namespace
}  // namespace nibble::kernels
