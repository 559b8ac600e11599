#include "formats/e4m3.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nibble::formats {
namespace {

double value_from_fields(int code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

bool is_nan_code(int code) { return (code & 0x7F) == 0x7F; }

TEST(E4m3, EveryCodeDecodesToItsFields) {
  for (int code = 0; code < 256; ++code) {
    const float found = e4m3_to_f32(static_cast<std::uint8_t>(code));
    if (is_nan_code(code)) {
      EXPECT_TRUE(std::isnan(found)) << code;
    } else {
      EXPECT_EQ(found, value_from_fields(code)) << code;
    }
    EXPECT_EQ(std::signbit(found), code >= 128) << code;
  }
}

TEST(E4m3, EveryCodeSurvivesTheRoundTrip) {
  for (int code = 0; code < 256; ++code) {
    EXPECT_EQ(f32_to_e4m3(e4m3_to_f32(static_cast<std::uint8_t>(code))), code);
  }
}

// By distance in double; 448 is the largest value, everything above saturates.
int nearest_code(double magnitude) {
  int best = 0;
  for (int code = 1; code < 127; ++code) {
    const double distance = std::fabs(magnitude - value_from_fields(code));
    const double best_distance = std::fabs(magnitude - value_from_fields(best));
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = code;
    }
  }
  return best;
}

void expect_nearest(float value) {
  ASSERT_EQ(f32_to_e4m3(value), nearest_code(value)) << value;
  ASSERT_EQ(f32_to_e4m3(-value), nearest_code(value) | 0x80) << value;
}

TEST(E4m3, NeighboursOfEveryValueAndMidpointRoundToNearestEven) {
  for (int code = 0; code < 126; ++code) {
    const double low = value_from_fields(code);
    const double high = value_from_fields(code + 1);
    for (const double centre : {low, (low + high) / 2, high}) {
      const auto value = static_cast<float>(centre);
      expect_nearest(value);
      expect_nearest(std::nextafter(value, 0.0F));
      expect_nearest(std::nextafter(value, 1e9F));
    }
  }
  for (std::uint32_t bits = 0; bits < 0x7F800000U; bits += 40093U) {
    expect_nearest(std::bit_cast<float>(bits));
  }
}

TEST(E4m3, SaturatesInfAndKeepsNan) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(f32_to_e4m3(inf), 0x7E);
  EXPECT_EQ(f32_to_e4m3(-inf), 0xFE);
  EXPECT_EQ(f32_to_e4m3(nan), 0x7F);
  EXPECT_EQ(f32_to_e4m3(-nan), 0xFF);
}

TEST(E4m3, RoundsUpToTheLeastValueThatHolds) {
  for (int code = 0; code < 126; ++code) {
    const auto value = static_cast<float>(value_from_fields(code));
    EXPECT_EQ(f32_to_e4m3_up(value), code);
    EXPECT_EQ(f32_to_e4m3_up(std::nextafter(value, 1e9F)), code + 1);
  }
  EXPECT_EQ(f32_to_e4m3_up(449.0F), 0x7E);
  EXPECT_EQ(f32_to_e4m3_up(std::numeric_limits<float>::quiet_NaN()), 0x7F);
}

}  // namespace
}  // namespace nibble::formats
