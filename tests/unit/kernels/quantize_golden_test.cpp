// Every backend against numpy, bit for bit.
#include <gtest/gtest.h>

#include <vector>

#include "base/thread_pool.h"
#include "unit/kernels/quantize_cases.h"

namespace nibble::kernels {
namespace {

void expect_equal(const QuantizeReport& found, const QuantizeReport& want) {
  EXPECT_EQ(found.num_nan, want.num_nan);
  EXPECT_EQ(found.num_inf, want.num_inf);
  EXPECT_EQ(found.first_non_finite, want.first_non_finite);
  EXPECT_EQ(found.num_poisoned_blocks, want.num_poisoned_blocks);
  EXPECT_EQ(found.num_saturated, want.num_saturated);
  EXPECT_EQ(found.num_zeroed_blocks, want.num_zeroed_blocks);
}

class QuantizeGoldenTest : public testing::TestWithParam<Backend> {};

TEST_P(QuantizeGoldenTest, GivesTheBytesOfNumpy) {
  ThreadPool pool(3);
  for (const QuantizeCase& want : quantize_golden().cases) {
    SCOPED_TRACE(want.number);
    QuantizeArgs args = want.args();
    args.options.backend = GetParam();
    std::vector<std::uint8_t> values(want.values.size(), 0xAB);
    std::vector<std::uint8_t> scales(want.scales.size(), 0xCD);
    const bool is_given = want.options.global_scale == GlobalScale::kGiven;
    std::vector<float> globals =
        is_given ? want.global_scales : std::vector<float>(want.global_scales.size(), -1.0F);
    args.values = values.data();
    args.scales = scales.data();
    args.global_scales = globals.data();
    const Result<QuantizeReport> report = quantize(args, {&pool, nullptr});
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_EQ(globals, want.global_scales);
    EXPECT_EQ(scales, want.scales);
    EXPECT_EQ(values, want.values);
    expect_equal(*report, want.report);
  }
}

TEST_P(QuantizeGoldenTest, GivesTheValuesOfNumpyBack) {
  ThreadPool pool(3);
  for (const QuantizeCase& want : quantize_golden().cases) {
    SCOPED_TRACE(want.number);
    const QuantizeInput& shape = *want.input;
    std::vector<float> out(std::size_t(shape.num_experts) * shape.rows * shape.cols, 7e7F);
    DequantizeArgs args;
    args.values = want.values.data();
    args.scales = want.scales.data();
    args.global_scales = want.global_scales.data();
    args.out = out.data();
    args.num_experts = shape.num_experts;
    args.rows = shape.rows;
    args.cols = shape.cols;
    args.dtype = DType::kF32;
    args.options = want.options;
    args.options.backend = GetParam();
    ASSERT_TRUE(dequantize(args, {&pool, nullptr}).ok());
    EXPECT_EQ(hash_of(out), want.out_hash);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, QuantizeGoldenTest,
                         testing::Values(Backend::kScalar, Backend::kCpu),
                         [](const auto& backend) { return backend_name(backend.param); });

TEST(QuantizeGolden, CoversEveryRuleAndLayout) {
  ASSERT_GE(quantize_golden().cases.size(), 50U);
  bool has_layout[4] = {};
  bool has_rule[3][4] = {};
  for (const QuantizeCase& one : quantize_golden().cases) {
    has_layout[static_cast<int>(one.options.scale_layout)] = true;
    has_rule[static_cast<int>(one.options.format)][static_cast<int>(one.options.rounding)] = true;
  }
  for (const bool is_there : has_layout) {
    EXPECT_TRUE(is_there);
  }
  EXPECT_TRUE(has_rule[0][0] && has_rule[0][1] && has_rule[0][2]);
  EXPECT_TRUE(has_rule[1][0] && has_rule[1][1] && has_rule[1][3]);
  EXPECT_TRUE(has_rule[2][0] && has_rule[2][1] && has_rule[2][2]);
}

}  // namespace
}  // namespace nibble::kernels
