#include "formats/e4m3_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "formats/bf16.h"

namespace nibble::formats {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

float largest(const std::vector<float>& row) {
  float amax = 0.0F;
  for (const float value : row) {
    amax = std::max(amax, std::abs(value));
  }
  return amax;
}

// Rows of every size, with elements of all sizes below the largest.
std::vector<std::vector<float>> rows() {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-20.0, 0.0);
  std::vector<std::vector<float>> out = {{0.0F, -0.0F}, {448.0F, -1.0F}, {448.1F, 449.0F}};
  for (int size = -90; size <= 120; size += 3) {
    std::vector<float> row;
    for (int i = 0; i < 64; ++i) {
      const double sign = random() % 2 == 0 ? 1.0 : -1.0;
      row.push_back(static_cast<float>(sign * std::exp2(size + exponent(random))));
    }
    out.push_back(row);
  }
  return out;
}

TEST(E4m3Row, ValuesComeBackWithinTheStatedError) {
  for (const std::vector<float>& row : rows()) {
    const double amax = largest(row);
    const std::uint8_t scale = e4m3_row_scale(static_cast<float>(amax), true);
    for (const float value : row) {
      const double back = e4m3_row_value(e4m3_row_code(value, scale), scale);
      ASSERT_LE(std::abs(back - value),
                std::max({0x1p-4 * std::abs(double{value}), 0x1p-17 * amax, 0x1p-110}))
          << value << " in a row of " << amax;
    }
  }
}

// Half the scale would saturate, so of two scales that hold the row this is the finer one.
TEST(E4m3Row, TheScaleIsTheLeastThatSaturatesNothing) {
  for (const std::vector<float>& row : rows()) {
    const double amax = largest(row);
    const std::uint8_t scale = e4m3_row_scale(static_cast<float>(amax), true);
    EXPECT_LE(amax, 448.0 * std::exp2(scale - 127));
    EXPECT_TRUE(amax > 224.0 * std::exp2(scale - 127) || scale == kLeastRowScale) << amax;
  }
}

TEST(E4m3Row, EveryCodeIsABf16UnderEveryScale) {
  for (int scale = kLeastRowScale; scale <= 127 + 119; ++scale) {
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7F) != kE4m3NaN) {
        const float value =
            e4m3_row_value(static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(scale));
        ASSERT_EQ(bf16_to_f32(f32_to_bf16(value)), value) << code << " under " << scale;
        ASSERT_EQ(e4m3_row_code(value, static_cast<std::uint8_t>(scale)), code);
      }
    }
  }
}

TEST(E4m3Row, ARowThatIsNoNumberIsNaNThroughout) {
  const std::uint8_t scale = e4m3_row_scale(1.0F, false);
  for (const float value : {0.0F, 1.0F, -3.0F, kInf, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(e4m3_row_value(e4m3_row_code(value, scale), scale))) << value;
  }
}

}  // namespace
}  // namespace nibble::formats
