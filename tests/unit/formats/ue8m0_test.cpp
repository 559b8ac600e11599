#include "formats/ue8m0.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nibble::formats {
namespace {

constexpr Ue8m0Rounding kRules[] = {Ue8m0Rounding::kUp, Ue8m0Rounding::kDown,
                                    Ue8m0Rounding::kNearest};

TEST(Ue8m0, EveryCodeIsItsPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(ue8m0_to_f32(static_cast<std::uint8_t>(code)), std::ldexp(1.0F, code - 127)) << code;
  }
  EXPECT_EQ(ue8m0_to_f32(0), 0x1p-127F);
  EXPECT_GT(ue8m0_to_f32(0), 0.0F);
  EXPECT_TRUE(std::isnan(ue8m0_to_f32(255)));
}

TEST(Ue8m0, ReciprocalIsExact) {
  for (int code = 0; code < 255; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_EQ(ue8m0_to_f32(byte) * ue8m0_reciprocal(byte), 1.0F) << code;
  }
  EXPECT_TRUE(std::isnan(ue8m0_reciprocal(255)));
}

TEST(Ue8m0, PowersEncodeToThemselvesUnderEveryRule) {
  for (int code = 0; code < 255; ++code) {
    for (const Ue8m0Rounding rule : kRules) {
      EXPECT_EQ(f32_to_ue8m0(ue8m0_to_f32(static_cast<std::uint8_t>(code)), rule), code);
    }
  }
}

// The rule by its words, in double.
int encode_slowly(float value, Ue8m0Rounding rule) {
  int best = rule == Ue8m0Rounding::kUp ? 254 : 0;
  for (int code = 0; code < 255; ++code) {
    const double power = std::ldexp(1.0, code - 127);
    const double wanted = value;
    if (rule == Ue8m0Rounding::kUp && power >= wanted) {
      return code;
    }
    if (rule == Ue8m0Rounding::kDown && power <= wanted) {
      best = code;
    }
    if (rule == Ue8m0Rounding::kNearest &&
        std::fabs(power - wanted) <= std::fabs(std::ldexp(1.0, best - 127) - wanted)) {
      best = code;
    }
  }
  return best;
}

TEST(Ue8m0, NeighboursOfEveryBoundaryFollowTheRule) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    for (const float factor : {1.0F, 1.5F}) {
      const float centre = std::ldexp(factor, exponent);
      for (const float value :
           {std::nextafter(centre, 0.0F), centre, std::nextafter(centre, 3.4e38F)}) {
        for (const Ue8m0Rounding rule : kRules) {
          if (std::isfinite(value)) {
            ASSERT_EQ(f32_to_ue8m0(value, rule), encode_slowly(value, rule)) << value;
          }
        }
      }
    }
  }
}

TEST(Ue8m0, WhatHasNoPowerIsNanOrClamped) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Ue8m0Rounding rule : kRules) {
    for (const float value : {inf, -inf, nan, -nan, -1.0F, -1e-45F}) {
      EXPECT_EQ(f32_to_ue8m0(value, rule), kUe8m0NaN) << value;
    }
    EXPECT_EQ(f32_to_ue8m0(0.0F, rule), 0);
    EXPECT_EQ(f32_to_ue8m0(-0.0F, rule), 0);
    EXPECT_EQ(f32_to_ue8m0(3.4e38F, rule), 254);
  }
}

}  // namespace
}  // namespace nibble::formats
