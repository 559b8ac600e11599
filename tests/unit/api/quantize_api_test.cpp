#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "nibble/quantize.h"

namespace nibble {
namespace {

using testing::HasSubstr;

TEST(QuantizeApi, QuantisesAndComesBackWithCounts) {
  std::vector<float> x(384, 0.75F);
  x[5] = -6.0F;
  x[193] = std::numeric_limits<float>::infinity();  // second expert
  QuantizeCall call;
  call.x = x.data();
  call.num_experts = 2;
  call.rows = 3;
  call.cols = 64;
  call.dtype = QuantDtype::kF32;
  call.options.format = QuantFormat::kNvfp4;
  call.options.has_global_scale_per_expert = true;
  call.options.scale_layout = ScaleLayout::k128x4;
  call.options.num_threads = 2;
  const QuantizedSize size = quantized_size(call).value();
  EXPECT_EQ(size.value_bytes, 3 * 64 / 2);
  EXPECT_EQ(size.scale_bytes, 128 * 4);
  std::vector<std::uint8_t> values(2 * size.value_bytes);
  std::vector<std::uint8_t> scales(2 * size.scale_bytes);
  float global_scales[2] = {};
  call.values = values.data();
  call.scales = scales.data();
  call.global_scales = global_scales;
  const QuantizeCounts counts = quantize(call).value();
  EXPECT_EQ(counts.num_inf, 1);
  EXPECT_EQ(counts.first_non_finite, 3 * 64 + 1);
  EXPECT_EQ(counts.num_poisoned_blocks, 1);
  EXPECT_EQ(global_scales[0], 0x1p-7F);   // 6 / 1024, up to a power of two
  EXPECT_EQ(global_scales[1], 0x1p-10F);  // 0.75 / 1024

  std::vector<float> out(x.size());
  DequantizeCall back;
  back.values = values.data();
  back.scales = scales.data();
  back.global_scales = global_scales;
  back.out = out.data();
  back.num_experts = 2;
  back.rows = 3;
  back.cols = 64;
  back.dtype = QuantDtype::kF32;
  back.options = call.options;
  ASSERT_TRUE(dequantize(back).ok());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool is_poisoned = i / 16 == 3 * 64 / 16;
    ASSERT_EQ(std::isnan(out[i]), is_poisoned) << i;
    // Beside the 6, steps of 0.5 leave 0.75 on a tie that goes to 1.
    ASSERT_TRUE(is_poisoned || out[i] == (i < 16 && i != 5 ? 1.0F : x[i])) << i << " " << out[i];
  }
}

TEST(QuantizeApi, LayoutsComeBack) {
  std::vector<std::uint8_t> values(4608);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  }
  for (const ValueLayout layout :
       {ValueLayout::kHopper, ValueLayout::kHopperPairs, ValueLayout::kBlackwell}) {
    std::vector<std::uint8_t> stored(value_layout_bytes(layout, 96, 96));
    std::vector<std::uint8_t> back(values.size());
    ASSERT_TRUE(
        convert_value_layout({values.data(), stored.data(), 96, 96, ValueLayout::kRowMajor, layout})
            .ok());
    ASSERT_TRUE(
        convert_value_layout({stored.data(), back.data(), 96, 96, layout, ValueLayout::kRowMajor})
            .ok());
    EXPECT_EQ(back, values);
  }
  std::vector<std::uint8_t> stored(scale_layout_bytes(ScaleLayout::k8x4, 96, 3));
  EXPECT_EQ(stored.size(), 96U * 4);
  ASSERT_TRUE(convert_scale_layout(
                  {values.data(), stored.data(), 96, 3, ScaleLayout::kLinear, ScaleLayout::k8x4})
                  .ok());
  EXPECT_EQ(stored[4], values[3]);  // row 1, block 0
  std::vector<std::uint8_t> halves(4096);
  ASSERT_TRUE(convert_gate_up_order({values.data(), halves.data(), 32, 48, 48, 64,
                                     GateUpOrder::kInterleaved, GateUpOrder::kUpFirstHalves})
                  .ok());
  EXPECT_EQ(halves[0], values[32]);    // the first up row
  EXPECT_EQ(halves[2048], values[0]);  // the first gate row, behind the padding
  EXPECT_EQ(halves[1536], 0);
}

TEST(QuantizeApi, RefusesInOneLine) {
  QuantizeCall call;
  call.rows = 1;
  call.cols = 32;
  EXPECT_THAT(quantize(call).error().message(), HasSubstr("got a null pointer"));
  call.options.backend = QuantBackend::kCuda;
  EXPECT_EQ(quantize(call).error().code(), Code::kUnsupported);
  call.options.backend = QuantBackend::kCpu;
  call.options.num_threads = -1;
  EXPECT_EQ(quantize(call).error().message(), "num_threads: want 0 or more, got -1");
  call.options.num_threads = 0;
  call.options.format = static_cast<QuantFormat>(9);
  EXPECT_EQ(quantized_size(call).error().message(), "format: want 0 to 2, got 9");
  EXPECT_EQ(convert_value_layout({}).code(), Code::kOk);
  EXPECT_THAT(convert_value_layout({nullptr, nullptr, 1, 32, {}, {}}).message(),
              HasSubstr("want from and to for 16 bytes"));
  EXPECT_THAT(convert_scale_layout({nullptr, nullptr, -1, 32, {}, {}}).message(),
              HasSubstr("got [-1, 32]"));
}

}  // namespace
}  // namespace nibble
