#include "formats/e2m1.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace nibble::formats {
namespace {

// From the definition: sign, exponent (bias 1) and one mantissa bit.
float value_from_fields(int code) {
  const int exponent = code >> 1 & 3;
  const int mantissa = code & 1;
  const double magnitude =
      exponent == 0 ? 0.5 * mantissa : (1.0 + 0.5 * mantissa) * std::ldexp(1.0, exponent - 1);
  return static_cast<float>((code & 8) != 0 ? -magnitude : magnitude);
}

TEST(E2m1, EveryCodeDecodesToItsFields) {
  for (int code = 0; code < 16; ++code) {
    const float want = value_from_fields(code);
    const float found = e2m1_to_f32(static_cast<std::uint8_t>(code));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(want)) << code;
    EXPECT_EQ(e2m1_to_f32(static_cast<std::uint8_t>(code | 0xF0)), found);
  }
}

TEST(E2m1, EveryCodeSurvivesTheRoundTrip) {
  for (int code = 0; code < 16; ++code) {
    EXPECT_EQ(f32_to_e2m1(value_from_fields(code)), code);
  }
}

// Nearest by distance in double, ties to the even code: no thresholds.
int nearest_code(float value) {
  const double magnitude = std::fabs(static_cast<double>(value));
  int best = magnitude >= 6.0 ? 7 : 0;  // distances round away far outside
  for (int code = 1; magnitude < 6.0 && code < 8; ++code) {
    const double distance = std::fabs(magnitude - value_from_fields(code));
    const double best_distance = std::fabs(magnitude - value_from_fields(best));
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = code;
    }
  }
  return best | (std::signbit(value) ? 8 : 0);
}

TEST(E2m1, EncodesToTheNearestCodeTiesToEven) {
  // Every midpoint and value with its neighbours, and a sweep over all exponents.
  for (int quarter = 0; quarter <= 40; ++quarter) {
    const float centre = static_cast<float>(quarter) * 0.25F;
    for (const float value :
         {std::nextafter(centre, -1.0F), centre, std::nextafter(centre, 99.0F)}) {
      EXPECT_EQ(f32_to_e2m1(value), nearest_code(value)) << value;
      EXPECT_EQ(f32_to_e2m1(-value), nearest_code(-value)) << value;
    }
  }
  for (std::uint32_t bits = 0; bits < 0x7F800000U; bits += 4099U) {
    const float value = std::bit_cast<float>(bits);
    ASSERT_EQ(f32_to_e2m1(value), nearest_code(value)) << value;
    ASSERT_EQ(f32_to_e2m1(-value), nearest_code(-value)) << value;
  }
}

TEST(E2m1, SaturatesInfAndMapsNanToPlusSix) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32_to_e2m1(inf), 7);
  EXPECT_EQ(f32_to_e2m1(-inf), 15);
  EXPECT_EQ(f32_to_e2m1(std::numeric_limits<float>::quiet_NaN()), 7);
  EXPECT_EQ(f32_to_e2m1(-std::numeric_limits<float>::quiet_NaN()), 7);
}

TEST(E2m1, EarlierElementIsTheLowNibble) {
  const std::uint8_t packed[2] = {e2m1_pack(0x1, 0x2), e2m1_pack(0x3, 0xC)};
  EXPECT_EQ(packed[0], 0x21);
  EXPECT_EQ(packed[1], 0xC3);
  EXPECT_EQ(e2m1_at(packed, 0), 0x1);
  EXPECT_EQ(e2m1_at(packed, 1), 0x2);
  EXPECT_EQ(e2m1_at(packed, 2), 0x3);
  EXPECT_EQ(e2m1_at(packed, 3), 0xC);
}

}  // namespace
}  // namespace nibble::formats
