// bf16 and f16, both ways, over every code.
#include <gtest/gtest.h>

#include <cmath>

#include "formats/bf16.h"
#include "formats/f16.h"

namespace nibble::formats {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

double f16_from_fields(int code) {
  const int exponent = code >> 10 & 31;
  const int mantissa = code & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24)
                                         : std::ldexp(1.0 + mantissa / 1024.0, exponent - 15);
  return (code & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(F16, EveryCodeDecodesToItsFieldsAndBack) {
  for (int code = 0; code < 65536; ++code) {
    const F16 half{static_cast<std::uint16_t>(code)};
    const float value = f16_to_f32(half);
    if ((code & 0x7FFF) > 0x7C00) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_EQ(f32_to_f16(value).bits, code | 0x0200);
    } else if ((code & 0x7FFF) == 0x7C00) {
      ASSERT_TRUE(std::isinf(value));
      ASSERT_EQ(f32_to_f16(value), half);
    } else {
      ASSERT_EQ(value, f16_from_fields(code)) << code;
      ASSERT_EQ(f32_to_f16(value), half);
    }
    ASSERT_EQ(std::signbit(value), code >= 0x8000);
  }
}

TEST(F16, NeighboursOfEveryMidpointRoundToNearestEven) {
  for (int code = 0; code < 0x7C00; ++code) {
    // Above the largest value the midpoint is where Inf begins: 65520.
    const double next = code == 0x7BFF ? 65536.0 : f16_from_fields(code + 1);
    const auto middle = static_cast<float>((f16_from_fields(code) + next) / 2);
    const int even = code % 2 == 0 ? code : code + 1;
    ASSERT_EQ(f32_to_f16(middle).bits, even) << code;
    ASSERT_EQ(f32_to_f16(-middle).bits, even | 0x8000) << code;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0F)).bits, code);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9F)).bits, code + 1);
  }
  EXPECT_EQ(f32_to_f16(3e38F).bits, 0x7C00);
  EXPECT_EQ(f32_to_f16(1e-45F).bits, 0);
}

TEST(Bf16, EveryCodeSurvivesTheRoundTrip) {
  for (int code = 0; code < 65536; ++code) {
    const Bf16 half{static_cast<std::uint16_t>(code)};
    const float value = bf16_to_f32(half);
    ASSERT_EQ(bits_of(value), static_cast<std::uint32_t>(code) << 16U);
    const bool is_nan = (code & 0x7FFF) > 0x7F80;
    ASSERT_EQ(f32_to_bf16(value).bits, is_nan ? code | 0x0040 : code);
  }
}

TEST(Bf16, NeighboursOfEveryMidpointRoundToNearestEven) {
  for (std::uint32_t code = 0; code < 0x7F80U; ++code) {
    const std::uint32_t middle = code << 16U | 0x8000U;
    const std::uint32_t even = code % 2 == 0 ? code : code + 1;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle)).bits, even) << code;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle - 1)).bits, code);
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle + 1)).bits, code + 1);
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle | 0x80000000U)).bits, even | 0x8000U);
  }
  // A NaN whose payload lies in the lower half may not turn into Inf.
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7F800001U)).bits, 0x7FC0);
}

}  // namespace
}  // namespace nibble::formats
