// include/nibble/route.h and plan.h give what the kernels give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "nibble/plan.h"
#include "nibble/route.h"

namespace nibble {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RouteApi, EveryOptionReachesTheRouter) {
  const std::vector<float> logits = {0, 1.0986123F, 0, 0};  // sigmoid: 1/2, 3/4, 1/2, 1/2
  const std::uint16_t bias[] = {0x3800, 0, 0x3000, 0};      // f16: 1/2, 0, 1/8, 0
  std::vector<std::int32_t> ids(2, -7);
  std::vector<float> weights(2, -7.0F);
  RouteCall call;
  call.logits = logits.data();
  call.bias = bias;
  call.bias_type = BiasType::kF16;
  call.ids = ids.data();
  call.weights = weights.data();
  call.num_tokens = 1;
  call.num_experts = 4;
  call.top_k = 2;
  call.options.score = RouteScore::kSigmoid;
  call.options.renormalise = true;
  call.options.scaling = 2.5F;
  call.options.num_groups = 2;
  ASSERT_TRUE(route(call).ok());
  EXPECT_THAT(ids, ElementsAre(0, 1));
  EXPECT_FLOAT_EQ(weights[0], 1.0F);
  EXPECT_FLOAT_EQ(weights[1], 1.5F);

  call.bias = nullptr;
  call.options.num_groups = 1;
  call.options.slot_order = SlotOrder::kByExpert;
  ASSERT_TRUE(route(call).ok());
  EXPECT_THAT(ids, ElementsAre(0, 1));  // best first would be 1, 0
  EXPECT_FLOAT_EQ(weights[0], 1.0F);

  call.options.placement = simulated_expert_parallel(4, 4, 1).value();
  ASSERT_TRUE(route(call).ok());
  EXPECT_THAT(ids, ElementsAre(0, -1));
  EXPECT_FLOAT_EQ(weights[0], 1.5F);
  EXPECT_EQ(weights[1], 0.0F);

  call.num_valid_tokens = 0;
  ASSERT_TRUE(route(call).ok());
  EXPECT_THAT(ids, ElementsAre(-1, -1));
}

TEST(RouteApi, RaggedRowsHaveTheDescribedSizes) {
  const std::vector<std::int32_t> ids = {2, 0, 0, 2, 2, -1, 0, 1};
  const std::vector<float> weights = {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0, 0.7F, 0.8F};
  RaggedCall call;
  call.ids = ids.data();
  call.weights = weights.data();
  call.num_tokens = 4;
  call.num_valid_tokens = 3;
  call.top_k = 2;
  call.num_experts = 3;
  const RaggedRows rows = build_ragged(call).value();
  EXPECT_THAT(rows.slice_sizes, ElementsAre(2, 0, 3));
  EXPECT_THAT(rows.slice_offs, ElementsAre(0, 2, 2, 5));
  EXPECT_THAT(rows.gather, ElementsAre(1, 2, 0, 3, 4, -1, -1, -1));
  EXPECT_THAT(rows.scatter, ElementsAre(2, 0, 1, 3, 4, -1, -1, -1));
  EXPECT_EQ(rows.gates[3], 0.4F);
  EXPECT_EQ(rows.num_places, 3);
  EXPECT_EQ(rows.schedule.size(), 4U * 3U);
  EXPECT_EQ(rows.block_offs.size(), 4U * 4U);
  call.weights = nullptr;
  EXPECT_TRUE(build_ragged(call).value().gates.empty());
  call.num_experts = 2;
  EXPECT_THAT(build_ragged(call).error().message(), HasSubstr("id 2 of token 0, slot 0"));
  call.num_experts = -1;
  EXPECT_EQ(build_ragged(call).error().code(), Code::kInvalidArgument);
}

TEST(PlanApi, LimitsOfTheCallerTakeEffect) {
  ProductProblem problem;
  problem.tokens = 8192;
  problem.num_experts = 128;
  problem.top_k = 4;
  problem.n = 5760;
  problem.k = 2880;
  const ProductPlan plan = plan_product(problem, {.arch = "sm_120"}).value();
  EXPECT_EQ(plan.arch, "sm_120");
  EXPECT_EQ(plan.layout, "strided");
  EXPECT_EQ(plan.shared_bytes, 66560);
  EXPECT_EQ(plan.rules.size(), 15U);
  EXPECT_FALSE(plan.verified);
  EXPECT_EQ(plan_product(problem, {.arch = "sm_120", .shared_bytes = 40000})->block_k, 64);
  EXPECT_FALSE(plan_product(problem, {.arch = "sm_100", .has_tma = false})->is_persistent);
  EXPECT_EQ(plan_product(problem, {.arch = "sm_100", .num_sms = 10})->grid, 10);
  EXPECT_EQ(plan_product(problem, {.arch = "sm_100", .num_sms = -1}).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(plan_product(problem, {.arch = "sm_75"}).error().code(), Code::kUnsupported);
  problem.has_mxfp4_weights = false;
  EXPECT_EQ(plan_product(problem, {.arch = "sm_90"})->layout, "strided");
}

}  // namespace
}  // namespace nibble
