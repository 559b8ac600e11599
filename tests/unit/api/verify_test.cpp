#include "api/commands/verify.h"

#include <gtest/gtest.h>

#include <string>

namespace nibble::commands {
namespace {

const std::string kTiny = std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/tiny";

VerifyReport verify_tiny(Activation activation, KvCacheType cache = KvCacheType::kAuto) {
  int passes = 0;
  const Result<VerifyReport> report =
      verify({.model = kTiny, .num_tokens = 150, .activation = activation, .kv_cache = cache},
             [&](std::int32_t done, std::int32_t total) {
               EXPECT_EQ(done, ++passes);
               EXPECT_EQ(total, 2);
             });
  EXPECT_TRUE(report.has_value()) << report.error().message();
  return report.has_value() ? *report : VerifyReport{};
}

TEST(Verify, ComparesEveryBlockOfEveryLayerAndTheHead) {
  const VerifyReport report = verify_tiny(Activation::kF32);
  ASSERT_FALSE(report.rows.empty());
  EXPECT_EQ(report.rows.size() % 3, 1U);
  EXPECT_EQ(report.rows[0].block, "attention");
  EXPECT_EQ(report.rows[1].block, "router");
  EXPECT_EQ(report.rows[2].block, "experts");
  EXPECT_EQ(report.rows.back().block, "head");
  EXPECT_EQ(report.rows.back().layer, static_cast<std::int32_t>(report.rows.size() / 3));
  EXPECT_EQ(report.num_tokens, 150);
}

TEST(Verify, KernelsOfThisMachineAreWithinTheBoundInEveryActivation) {
  for (const auto& [activation, name] : {std::pair{Activation::kF32, "f32"},
                                         {Activation::kBf16, "bf16"},
                                         {Activation::kInt8, "int8"}}) {
    const VerifyReport report = verify_tiny(activation);
    EXPECT_EQ(report.activation, name);
    EXPECT_TRUE(report.is_ok) << report.activation;
    for (const VerifyRow& row : report.rows) {
      EXPECT_TRUE(row.is_within_bound)
          << row.layer << ' ' << row.block << ' ' << row.relative_difference;
    }
  }
}

// Keys and values are rounded from float32 sums, which differ by so little that hardly a code does.
TEST(Verify, ACacheOfCodesIsWithinTheBoundsOfItsActivation) {
  for (const Activation activation : {Activation::kF32, Activation::kBf16}) {
    const VerifyReport report = verify_tiny(activation, KvCacheType::kFp8);
    EXPECT_EQ(report.kv_cache, "fp8");
    EXPECT_TRUE(report.is_ok) << report.activation;
  }
  EXPECT_EQ(verify_tiny(Activation::kBf16).kv_cache, "bf16");
}

TEST(Verify, RefusesWhatCannotBeRun) {
  const auto ignore = [](std::int32_t, std::int32_t) {};
  EXPECT_EQ(verify({.model = kTiny, .ids = {1, 1 << 30}}, ignore).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(verify({.model = kTiny, .num_tokens = 0}, ignore).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(verify({.model = "/nonexistent"}, ignore).error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace nibble::commands
