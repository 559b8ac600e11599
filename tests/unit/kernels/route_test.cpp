// Edges of route.h, worked out by hand.
#include "kernels/route/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

namespace nibble::kernels {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
using Ids = std::vector<std::int32_t>;

// Logits in, ids and weights out.
struct Call {
  Call(std::vector<float> values, std::int32_t experts, std::int32_t top_k)
      : logits(std::move(values)) {
    args.num_experts = experts;
    args.top_k = top_k;
    args.num_tokens = static_cast<std::int32_t>(logits.size()) / experts;
    args.num_valid_tokens = args.num_tokens;
    args.logits = logits.data();
    ids.assign(static_cast<std::size_t>(args.num_tokens) * top_k, -7);
    weights.assign(ids.size(), kNaN);
    args.ids = ids.data();
    args.weights = weights.data();
    args.num_faults = &num_faults;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  Status run() { return route(args, Exec{}); }

  std::vector<float> logits;
  RouteArgs args;
  Ids ids;
  std::vector<float> weights;
  std::int32_t num_faults = -1;
};

TEST(Route, TiesGoToTheSmallerIndexEvenForNegativeZero) {
  Call call({1, 3, 3, 3, 2, 0.0F, -0.0F, 0, -0.0F, -1}, 5, 3);
  ASSERT_TRUE(call.run().ok());
  EXPECT_EQ(call.ids, (Ids{1, 2, 3, 0, 1, 2}));
  EXPECT_THAT(call.weights, Each(1.0F / 3.0F));
}

TEST(Route, MinusInfinityIsChosenLastWithWeightZero) {
  Call call({-kInf, -5, -kInf, -kInf}, 4, 3);
  ASSERT_TRUE(call.run().ok());
  EXPECT_EQ(call.ids, (Ids{1, 0, 2}));
  EXPECT_THAT(call.weights, ElementsAre(1.0F, 0.0F, 0.0F));
}

TEST(Route, AllNegativeLogitsKeepTheirDifferences) {
  Call call({-1000, -1001, -2000}, 3, 2);
  ASSERT_TRUE(call.run().ok());
  EXPECT_EQ(call.ids, (Ids{0, 1}));
  EXPECT_FLOAT_EQ(call.weights[0], 0.73105858F);
}

TEST(Route, PaddingRowsGetValidIdsAndNoWeightWhateverTheyHold) {
  Call call({2, 1, 0, kNaN, kNaN, kNaN, kInf, -kInf, kNaN}, 3, 2);
  call.args.num_valid_tokens = 1;
  ASSERT_TRUE(call.run().ok());
  EXPECT_EQ(call.ids, (Ids{0, 1, 0, 1, 0, 1}));
  EXPECT_THAT(std::vector<float>(call.weights.begin() + 2, call.weights.end()), Each(0.0F));
  EXPECT_EQ(call.num_faults, 0);
}

TEST(Route, FaultyRowsAreCountedNamedAndLeaveTheOthersAlone) {
  Call clean({0, 1, 2, 0, 1, 2}, 3, 2);
  ASSERT_TRUE(clean.run().ok());
  Call call({0, 1, 2, kNaN, 1, 2, kInf, kInf, kInf, -kInf, -kInf, -kInf, 0, 1, 2}, 3, 2);
  const Status status = call.run();
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("token 1 "));
  EXPECT_THAT(status.message(), HasSubstr("3 such of 5 tokens"));
  EXPECT_EQ(call.num_faults, 3);
  EXPECT_EQ(call.ids, (Ids{2, 1, 0, 1, 0, 1, 0, 1, 2, 1}));
  EXPECT_EQ(call.weights[0], clean.weights[0]);
  EXPECT_EQ(call.weights[8], clean.weights[2]);
  EXPECT_THAT(std::vector<float>(call.weights.begin() + 2, call.weights.begin() + 8), Each(0.0F));
}

TEST(Route, ZeroTokensNeedNoMemory) {
  RouteArgs args;
  args.num_experts = 4;
  args.top_k = 2;
  EXPECT_TRUE(route(args, Exec{}).ok());
  EXPECT_TRUE(route_ref(args).ok());
}

TEST(Route, MissingArraysAreNamed) {
  Call call({0, 1}, 2, 1);
  call.args.logits = nullptr;
  EXPECT_THAT(call.run().message(), HasSubstr("logits is null for 1 tokens"));
  call.args.num_valid_tokens = 0;  // padding is not read
  EXPECT_TRUE(call.run().ok());
  call.args.ids = nullptr;
  EXPECT_THAT(call.run().message(), HasSubstr("ids or weights is null for 1 tokens"));
}

TEST(Route, TopKMayEqualTheExpertsAndNotExceedThem) {
  Call all({3, 1, 2}, 3, 3);
  ASSERT_TRUE(all.run().ok());
  EXPECT_EQ(all.ids, (Ids{0, 2, 1}));
  Call beyond({3, 1, 2}, 3, 3);
  beyond.args.top_k = 4;
  EXPECT_EQ(beyond.run().code(), Code::kInvalidArgument);
  EXPECT_THAT(beyond.run().message(), HasSubstr("top_k in 1..3 (the experts), got 4"));
}

// A bias that swallows tiny sigmoids makes equal keys across the border of the choice.
TEST(Route, KeysMadeEqualByTheBiasStillGiveFiniteWeights) {
  for (const std::int32_t experts : {64, 256}) {
    for (const std::int32_t groups : {1, 8}) {
      Call call(std::vector<float>(experts, -40.0F), experts, 8);
      std::vector<float> bias(experts);
      for (std::int32_t e = 0; e < experts; ++e) {
        bias[e] = 9.0F + 0.125F * static_cast<float>(e * 7 % 5);
      }
      call.args.bias = {bias.data(), DType::kF32, experts};
      call.args.options.score = RouteScore::kSigmoid;
      call.args.options.renormalise = true;
      call.args.options.renormalise_epsilon = 1e-20F;
      call.args.options.scaling = 2.5F;
      call.args.options.num_groups = groups;
      call.args.options.topk_groups = groups == 1 ? 1 : 4;
      ASSERT_TRUE(call.run().ok());
      // Largest bias: e = 2, 7, 12, ...; of the groups of eight, 0, 2, 4 and 5 hold two of these.
      const bool has_small_groups = experts == 64 && groups == 8;
      EXPECT_EQ(call.ids, has_small_groups ? (Ids{2, 7, 17, 22, 32, 37, 42, 47})
                                           : (Ids{2, 7, 12, 17, 22, 27, 32, 37}));
      EXPECT_NEAR(std::accumulate(call.weights.begin(), call.weights.end(), 0.0F), 2.5F, 1e-3F);
    }
  }
}

TEST(Route, BiasChoosesButDoesNotWeigh) {
  Call call({0, 0, 0, 0}, 4, 2);
  const std::vector<float> bias = {0, 3, 1, 2};
  call.args.bias = {bias.data(), DType::kF32, 4};
  call.args.options.score = RouteScore::kSigmoid;
  ASSERT_TRUE(call.run().ok());
  EXPECT_EQ(call.ids, (Ids{1, 3}));
  EXPECT_THAT(call.weights, Each(0.5F));
}

TEST(Route, BiasOfAnyFloatTypeIsConvertedAndOthersRefused) {
  const std::uint16_t bf16[] = {0x0000, 0x4040, 0x3F80, 0x4000};  // 0, 3, 1, 2
  const std::uint16_t f16[] = {0x0000, 0x4200, 0x3C00, 0x4000};
  for (const RouteBias& bias : {RouteBias{bf16, DType::kBF16, 4}, RouteBias{f16, DType::kF16, 4}}) {
    Call call({0, 0, 0, 0}, 4, 2);
    call.args.bias = bias;
    ASSERT_TRUE(call.run().ok());
    EXPECT_EQ(call.ids, (Ids{1, 3}));
  }
  Call call({0, 0, 0, 0}, 4, 2);
  call.args.bias = {f16, DType::kI32, 4};
  EXPECT_THAT(call.run().message(), HasSubstr("f32, bf16 or f16, got i32"));
  call.args.bias = {f16, DType::kF16, 3};
  EXPECT_THAT(call.run().message(), HasSubstr("4 values, got 3"));
  const float bad[] = {0, 0, kNaN, 0};
  call.args.bias = {bad, DType::kF32, 4};
  EXPECT_THAT(call.run().message(), HasSubstr("bias[2] is nan"));
}

TEST(Route, GroupsCountTheirTwoBest) {
  // Group 0 has the single best expert, group 1 the best pair.
  Call call({9, 0, 6, 5, 1, 1}, 6, 2);
  call.args.options.num_groups = 3;
  call.args.options.topk_groups = 1;
  ASSERT_TRUE(call.run().ok());
  EXPECT_EQ(call.ids, (Ids{2, 3}));
  call.args.options.group_score = GroupScore::kBest;
  ASSERT_TRUE(call.run().ok());
  EXPECT_EQ(call.ids, (Ids{0, 1}));
}

TEST(Route, GroupsThatCannotHoldTheChoiceAreRefused) {
  Call call({9, 0, 6, 5, 1, 1}, 6, 3);
  call.args.options.num_groups = 3;
  call.args.options.topk_groups = 1;
  EXPECT_THAT(call.run().message(), HasSubstr("hold 2 experts, fewer than top_k 3"));
  call.args.options.num_groups = 4;
  EXPECT_THAT(call.run().message(), HasSubstr("6 experts cannot be cut into 4"));
}

// DeepSeek-V3: sigmoid, bias, groups, epsilon, factor 2.5. Computed by hand: sigmoid(0) = 1/2,
// sigmoid(ln 3) = 3/4.
TEST(Route, DeepSeekV3Rule) {
  Call call({0, 1.0986123F, 0, 0}, 4, 2);
  const std::vector<float> bias = {0.5F, 0, 0.125F, 0};
  call.args.bias = {bias.data(), DType::kF32, 4};
  call.args.options = {.score = RouteScore::kSigmoid,
                       .renormalise = true,
                       .renormalise_epsilon = 1e-20F,
                       .scaling = 2.5F,
                       .num_groups = 2,
                       .topk_groups = 1};
  ASSERT_TRUE(call.run().ok());
  EXPECT_EQ(call.ids, (Ids{0, 1}));
  EXPECT_FLOAT_EQ(call.weights[0], 1.0F);  // 0.5 / 1.25 * 2.5
  EXPECT_FLOAT_EQ(call.weights[1], 1.5F);
}

TEST(Route, GivenIdsKeepTheirOrderAndMayRepeat) {
  Call call({0, 1.0986123F, 0, 5}, 4, 3);
  const Ids given = {1, 0, 1};
  call.args.given_ids = given.data();
  call.args.options.score = RouteScore::kSigmoid;
  ASSERT_TRUE(call.run().ok());
  EXPECT_EQ(call.ids, given);
  EXPECT_FLOAT_EQ(call.weights[0], 0.75F);
  EXPECT_FLOAT_EQ(call.weights[1], 0.5F);
  const Ids wrong = {1, 4, 1};
  call.args.given_ids = wrong.data();
  EXPECT_THAT(call.run().message(), HasSubstr("given id 4 of token 0, slot 1 is outside 0..3"));
}

TEST(Route, SimulatedExpertParallelismCutsTheWorkOfOneRankInEachRow) {
  const std::vector<float> logits = {0, 1, 2, 3, 3, 2, 1, 0, 3, 0, 1, 2};
  Call whole(logits, 4, 2);
  ASSERT_TRUE(whole.run().ok());
  ASSERT_EQ(whole.ids, (Ids{3, 2, 0, 1, 0, 3}));
  Call part(logits, 4, 2);
  part.args.options.placement = simulated_expert_parallel(4, 2, 1).value();
  ASSERT_TRUE(part.run().ok());
  EXPECT_EQ(part.ids, (Ids{1, 0, -1, -1, 1, -1}));  // moved to the front in the last row
  EXPECT_EQ(part.weights[0], whole.weights[0]);
  EXPECT_EQ(part.weights[4], whole.weights[5]);
  EXPECT_EQ(part.weights[2], 0.0F);
  EXPECT_EQ(num_local_experts(part.args.options.placement, 4), 2);
  EXPECT_EQ(simulated_expert_parallel(6, 4, 0).error().message(),
            "route: 6 experts cannot be cut into 4 equal ranks");
  EXPECT_EQ(simulated_expert_parallel(6, 3, 3).error().code(), Code::kInvalidArgument);
}

TEST(Route, RemapMovesExpertsAndRefusesTwoOnOnePlace) {
  Call call({0, 1, 2}, 3, 2);
  const Ids remap = {5, -1, 4};
  call.args.options.placement = {
      .remap = remap.data(), .num_physical = 6, .local_begin = 3, .local_end = 6};
  ASSERT_TRUE(call.run().ok());
  EXPECT_EQ(call.ids, (Ids{1, -1}));
  const Ids twice = {5, 5, 4};
  call.args.options.placement.remap = twice.data();
  EXPECT_THAT(call.run().message(), HasSubstr("experts 0 and 1 are both mapped to 5"));
  const Ids outside = {5, 6, 4};
  call.args.options.placement.remap = outside.data();
  EXPECT_THAT(call.run().message(), HasSubstr("remap[1] is 6, want -1..5"));
}

}  // namespace
}  // namespace nibble::kernels
