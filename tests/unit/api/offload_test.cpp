#include "api/commands/offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nibble::commands {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Ten layers of 1 GiB of experts, 3 GiB of other weights, 1 GiB of cache, 1 GiB of reserve.
OffloadProblem problem(std::int64_t gpu_gib, std::int64_t host_gib) {
  return {.name = "m",
          .num_layers = 10,
          .layer_expert_bytes = kGiB,
          .other_bytes = 3 * kGiB,
          .cache_bytes = kGiB,
          .token_expert_bytes = 1000,
          .token_other_bytes = 500,
          .gpu_bytes = gpu_gib * kGiB,
          .host_bytes = host_gib * kGiB,
          .gpu_rate = 1e6,
          .host_rate = 1e5};
}

TEST(Offload, EverythingStaysOnAGpuThatHoldsIt) {
  const Result<OffloadPlan> plan = plan_offload(problem(15, 0), -1);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->n_cpu_moe, 0);
  EXPECT_EQ(plan->gpu_total_bytes, 15 * kGiB);
  EXPECT_EQ(plan->host_total_bytes, 0);
  EXPECT_DOUBLE_EQ(plan->tokens_per_second, 1e6 / 1500.0);
}

TEST(Offload, OneByteLessMovesOneLayer) {
  OffloadProblem tight = problem(15, 10);
  tight.gpu_bytes -= 1;
  const Result<OffloadPlan> plan = plan_offload(tight, -1);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->n_cpu_moe, 1);
  EXPECT_EQ(plan->host_total_bytes, kGiB);
}

TEST(Offload, PricesEachPartAtItsRate) {
  const Result<OffloadPlan> plan = plan_offload(problem(15, 10), 4);
  ASSERT_TRUE(plan.has_value());
  EXPECT_DOUBLE_EQ(plan->host_ms, 1e3 * 400.0 / 1e5);
  EXPECT_DOUBLE_EQ(plan->gpu_ms, 1e3 * 1100.0 / 1e6);
  EXPECT_DOUBLE_EQ(plan->tokens_per_second, 1e3 / (plan->host_ms + plan->gpu_ms));
}

TEST(Offload, UnknownRatesArePricedAsNothing) {
  OffloadProblem unknown = problem(15, 10);
  unknown.gpu_rate = 0.0;
  unknown.host_rate = 0.0;
  EXPECT_EQ(plan_offload(unknown, 4)->tokens_per_second, 0.0);
}

TEST(Offload, RefusesWithTheNumbersAndTheSplitThatFits) {
  const Result<OffloadPlan> plan = plan_offload(problem(10, 10), 2);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code(), Code::kExhausted);
  EXPECT_THAT(plan.error().message(), HasSubstr("want 13.00 GiB on the GPU and 2.00 GiB of host"));
  EXPECT_THAT(plan.error().message(), HasSubstr("found 10.00 and 10.00 GiB"));
  EXPECT_THAT(plan.error().message(), HasSubstr("--n-cpu-moe 5 fits"));
}

TEST(Offload, RefusesWhenNoSplitFits) {
  EXPECT_THAT(plan_offload(problem(4, 100), -1).error().message(), HasSubstr("no split fits"));
  EXPECT_THAT(plan_offload(problem(10, 4), -1).error().message(), HasSubstr("no split fits"));
}

TEST(Offload, RefusesMoreLayersThanThereAre) {
  EXPECT_EQ(plan_offload(problem(15, 15), 11).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(plan_offload(problem(15, 15), -2).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace nibble::commands
