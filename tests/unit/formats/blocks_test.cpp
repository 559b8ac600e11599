// Scale rules and stored blocks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "formats/block_scale.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"

namespace nibble::formats {
namespace {

// The rules by their words, in double.
int scale_up(double amax, double max_value) {
  int code = 0;
  while (std::ldexp(max_value, code - 127) < amax) {
    ++code;
  }
  return code;
}
int scale_floor(double amax, int max_exponent) {
  const int code = static_cast<int>(std::floor(std::log2(amax))) - max_exponent + 127;
  return code < 0 ? 0 : code;
}

void expect_rules(float amax) {
  ASSERT_EQ(mx_scale(amax, kE2m1Range, true), scale_up(amax, 6)) << amax;
  ASSERT_EQ(mx_scale(amax, kE4m3Range, true), scale_up(amax, 448)) << amax;
  if (amax > 0) {
    // log2 of a neighbour of a power may round onto it: ask frexp instead.
    int exponent = 0;
    (void)std::frexp(amax, &exponent);
    const double power = std::ldexp(1.0, exponent - 1);
    ASSERT_EQ(mx_scale(amax, kE2m1Range, false), scale_floor(power, 2)) << amax;
    ASSERT_EQ(mx_scale(amax, kE4m3Range, false), scale_floor(power, 8)) << amax;
  }
}

TEST(MxScale, FollowsTheRulesAtEveryBoundaryNeighbour) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    for (const float factor : {1.0F, 1.3F, 1.5F, 1.75F, 1.9F}) {
      const float centre = std::ldexp(factor, exponent);
      for (const float amax :
           {std::nextafter(centre, 0.0F), centre, std::nextafter(centre, 3.4e38F)}) {
        if (std::isfinite(amax)) {
          expect_rules(amax);
        }
      }
    }
  }
  expect_rules(0.0F);
  expect_rules(std::numeric_limits<float>::max());
}

TEST(MxScale, RoundUpEqualsTheAddAndMaskRuleOnNormalQuotients) {
  // triton_kernels: bits of amax / 6, plus 0x007FFFFF, masked with 0x7F800000.
  for (std::uint32_t bits = 0x02800000U; bits < 0x7F800000U; bits += 1021U) {
    const float amax = std::bit_cast<float>(bits);
    const auto quotient = std::bit_cast<std::uint32_t>(amax / 6.0F);
    ASSERT_EQ(mx_scale(amax, kE2m1Range, true), (quotient + 0x007FFFFFU) >> 23U) << amax;
  }
}

TEST(MxScale, TheMaximumStaysInRangeAndUsesIt) {
  for (const float amax : {1.3F, 2.9F, 3.9F, 4.0F, 5.2F, 6.0F, 6.01F, 7.9F, 8.0F, 1e-40F, 3e38F}) {
    const float up = ue8m0_to_f32(mx_scale(amax, kE2m1Range, true));
    EXPECT_LE(amax / up, 6.0F) << amax;
    const float floor = ue8m0_to_f32(mx_scale(amax, kE2m1Range, false));
    EXPECT_LT(amax / floor, 8.0F) << amax;
    if (amax > 1e-38F) {  // below, the smallest scale is the limit
      EXPECT_GT(amax / up, 3.0F) << amax;
      EXPECT_GE(amax / floor, 4.0F) << amax;
    }
  }
}

TEST(Mxfp4Block, EveryCodeUnderEveryScale) {
  for (int scale = 0; scale < 256; ++scale) {
    for (int code = 0; code < 16; ++code) {
      Mxfp4Block block;
      block.scale = static_cast<std::uint8_t>(scale);
      block.codes[3] = e2m1_pack(static_cast<std::uint8_t>(code), 0);
      const float found = mxfp4_value(block, 6);
      if (scale == 255) {
        ASSERT_TRUE(std::isnan(found)) << code;
        continue;
      }
      const double want = std::ldexp(static_cast<double>(kE2m1Values[code]), scale - 127);
      ASSERT_EQ(found, static_cast<float>(want)) << scale << " " << code;
      ASSERT_EQ(std::signbit(found), code >= 8);
      ASSERT_EQ(std::isinf(found), std::fabs(want) >= 0x1p128);
    }
  }
}

TEST(Nvfp4Block, EveryCodeUnderEveryScale) {
  for (int scale = 0; scale < 128; ++scale) {
    for (int code = 0; code < 16; ++code) {
      Nvfp4Block block;
      block.scale = static_cast<std::uint8_t>(scale);
      block.codes[7] = e2m1_pack(0, static_cast<std::uint8_t>(code));
      const float found = nvfp4_value(block, 15, 0.25F);
      if (scale == 127) {
        ASSERT_TRUE(std::isnan(found));
      } else {
        ASSERT_EQ(found, kE2m1Values[code] * e4m3_to_f32(block.scale) * 0.25F);
      }
    }
  }
}

TEST(Nvfp4GlobalScale, PowerOfTwoIsTheLeastThatKeepsBlockScalesAtMost256) {
  for (int exponent = -110; exponent <= 127; ++exponent) {
    for (const float factor : {1.0F, 1.1F, 1.999F}) {
      const float amax = std::ldexp(factor, exponent);
      const float global = nvfp4_global_scale_pow2(amax);
      EXPECT_LE(amax / 4.0F / global, 256.0F) << amax;
      EXPECT_GT(amax / 2.0F / global, 256.0F) << amax;
    }
  }
  EXPECT_EQ(nvfp4_global_scale_pow2(0.0F), 1.0F);
  EXPECT_EQ(nvfp4_global_scale_pow2(1e-45F), 0x1p-126F);
  EXPECT_EQ(nvfp4_global_scale(1e-45F), 1.0F);
}

}  // namespace
}  // namespace nibble::formats
