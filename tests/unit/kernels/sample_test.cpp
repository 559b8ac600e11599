#include "kernels/sample/sample.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "support/golden_arrays.h"

namespace nibble::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::GoldenArrays;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Draws from copies of one row of logits.
class Sampler {
 public:
  explicit Sampler(std::vector<float> logits)
      : logits_(std::move(logits)), scratch_(logits_.size()), order_(logits_.size()) {}

  Result<std::int32_t> draw(SampleArgs args) {
    std::vector<float> logits = logits_;
    args.logits = logits;
    args.scratch = scratch_;
    args.order = order_;
    scratch_.assign(scratch_.size(), NAN);
    order_.assign(order_.size(), -1);
    return sample(args);
  }
  // The tokens that come up in `count` draws.
  std::set<std::int32_t> support(SampleArgs args, std::uint64_t count = 2000) {
    std::set<std::int32_t> seen;
    for (args.counter = 0; args.counter < count; ++args.counter) {
      seen.insert(draw(args).value());
    }
    return seen;
  }

 private:
  std::vector<float> logits_;
  std::vector<float> scratch_;
  std::vector<std::int32_t> order_;
};

TEST(Philox, KnownAnswersOfItsAuthors) {
  EXPECT_THAT(philox(0, 0, 0), ElementsAre(0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U));
  const std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_THAT(philox(ones, ones, ones),
              ElementsAre(0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU));
  EXPECT_THAT(philox(0x299f31d0a4093822U, 0x85a308d3243f6a88U, 0x0370734413198a2eU),
              ElementsAre(0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U));
}

TEST(Philox, UniformIsInTheHalfOpenUnitInterval) {
  double sum = 0.0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const float u = uniform(5, i);
    ASSERT_GE(u, 0.0F);
    ASSERT_LT(u, 1.0F);
    ASSERT_EQ(u, static_cast<float>(philox(5, i, 0)[0] >> 8U) * 0x1p-24F);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 4 * std::sqrt(1.0 / 12.0 / 10000));
}

TEST(Sample, AgreesWithNumpyUnderEveryFilter) {
  const std::size_t count = GoldenArrays::count("sample", "cases");
  ASSERT_GE(count, 48U);
  for (std::size_t number = 0; number < count; ++number) {
    const GoldenArrays golden("sample", "cases", number);
    Sampler sampler(golden.get("logits"));
    std::vector<TokenCount> counts;
    const auto seen = golden.get<std::int32_t>("seen_ids");
    for (std::size_t i = 0; i < seen.size(); ++i) {
      counts.push_back({seen[i], golden.get<std::int32_t>("seen_counts")[i]});
    }
    std::vector<LogitBias> bias;
    const auto biased = golden.get<std::int32_t>("bias_ids");
    for (std::size_t i = 0; i < biased.size(); ++i) {
      bias.push_back({biased[i], golden.get("bias_values")[i]});
    }
    SampleArgs args;
    args.counts = counts;
    args.logit_bias = bias;
    args.temperature = static_cast<float>(golden.number("temperature"));
    args.top_k = static_cast<std::int32_t>(golden.number("top_k"));
    args.top_p = static_cast<float>(golden.number("top_p"));
    args.min_p = static_cast<float>(golden.number("min_p"));
    args.repetition_penalty = static_cast<float>(golden.number("repetition"));
    args.presence_penalty = static_cast<float>(golden.number("presence"));
    args.frequency_penalty = static_cast<float>(golden.number("frequency"));
    args.seed = static_cast<std::uint64_t>(golden.number("seed"));
    const auto ids = golden.get<std::int32_t>("ids");
    const auto counters = golden.get<std::uint64_t>("counters");
    ASSERT_GE(ids.size(), 50U);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      args.counter = counters[i];
      ASSERT_EQ(sampler.draw(args).value(), ids[i]) << "case " << number << ", draw " << i;
    }
    const auto kept = golden.get<std::int32_t>("kept");
    for (const std::int32_t id : sampler.support(args, 500)) {
      ASSERT_TRUE(std::binary_search(kept.begin(), kept.end(), id)) << number << ": " << id;
    }
  }
}

TEST(Sample, GreedyTiesGoToTheSmallerId) {
  EXPECT_EQ(Sampler({1, 3, 3, 2, 3}).draw({.temperature = 0.0F}).value(), 1);
  EXPECT_EQ(Sampler({-kInfinity, -5, -5}).draw({.temperature = 0.0F}).value(), 1);
  EXPECT_EQ(Sampler({-0.0F, 0.0F}).draw({.temperature = 0.0F}).value(), 0);
  EXPECT_EQ(Sampler({7}).draw({.temperature = 0.0F}).value(), 0);
}

TEST(Sample, BorderTies) {
  // top-k: the smaller ids among the equal ones.
  EXPECT_THAT(Sampler({0, 2, 2, 2, 1}).support({.top_k = 2}), ElementsAre(1, 2));
  EXPECT_THAT(Sampler({2, 1, 1, 3}).support({.top_k = 3}), ElementsAre(0, 1, 3));
  EXPECT_THAT(Sampler({1, 1, 1}).support({.top_k = 3}), ElementsAre(0, 1, 2));
  EXPECT_THAT(Sampler({1, 1, 1}).support({.top_k = 7}), ElementsAre(0, 1, 2));
  // top-p: the sum reaches p exactly at the second of four equal ones, so there it ends.
  EXPECT_THAT(Sampler({5, 5, 5, 5}).support({.top_p = 0.5F}), ElementsAre(0, 1));
  EXPECT_THAT(Sampler({5, 5, 5, 5}).support({.top_p = 0.500001F}), ElementsAre(0, 1, 2));
  EXPECT_THAT(Sampler({1, 2, 3}).support({.top_p = 0.0F}), ElementsAre(2));  // one always stays
  // min-p: "at least" keeps equality.
  EXPECT_THAT(Sampler({5, 5, 0}).support({.min_p = 1.0F}), ElementsAre(0, 1));
}

TEST(Sample, TopPGrowsBeyondItsFirstPrefix) {
  const std::vector<float> flat(5000, 1.0F);
  std::int32_t largest = 0;
  for (const std::int32_t id : Sampler(flat).support({.top_p = 0.5F})) {
    largest = std::max(largest, id);
  }
  EXPECT_GT(largest, 2300);
  EXPECT_LT(largest, 2500);
}

TEST(Sample, FiltersApplyInOrder) {
  // top-p is of what top-k left: 0.5 + 0.25 of 0.75 instead of 0.5 + 0.25 + 0.25.
  const float half = std::log(0.5F);
  const float quarter = std::log(0.25F);
  EXPECT_THAT(Sampler({half, quarter, quarter}).support({.top_k = 2, .top_p = 0.7F}),
              ElementsAre(0, 1));
  EXPECT_THAT(Sampler({half, quarter, quarter}).support({.top_k = 2, .top_p = 0.6F}),
              ElementsAre(0));
  // Temperature comes before min-p: flattened, the second passes.
  EXPECT_THAT(Sampler({0, -4}).support({.min_p = 0.1F}), ElementsAre(0));
  EXPECT_THAT(Sampler({0, -4}).support({.temperature = 4.0F, .min_p = 0.1F}), ElementsAre(0, 1));
}

TEST(Sample, PenaltiesAndBias) {
  const SampleArgs greedy{.temperature = 0.0F};
  SampleArgs args = greedy;
  const TokenCount prompt_only[] = {{0, 0}};
  args.counts = prompt_only;
  args.presence_penalty = 100.0F;  // counts output tokens alone
  args.frequency_penalty = 100.0F;
  EXPECT_EQ(Sampler({3, 2}).draw(args).value(), 0);
  args = greedy;
  args.counts = prompt_only;
  args.repetition_penalty = 2.0F;  // prompt tokens too
  EXPECT_EQ(Sampler({3, 2}).draw(args).value(), 1);
  EXPECT_EQ(Sampler({-1, -1.5F}).draw(args).value(), 1);  // a negative logit is multiplied
  const TokenCount thrice[] = {{0, 3}};
  args = greedy;
  args.counts = thrice;
  args.frequency_penalty = 0.5F;
  EXPECT_EQ(Sampler({3, 1.75F}).draw(args).value(), 1);
  args.frequency_penalty = 0.25F;
  EXPECT_EQ(Sampler({3, 1.75F}).draw(args).value(), 0);
  args = greedy;
  const LogitBias bias[] = {{1, 5.0F}, {0, -kInfinity}};
  args.logit_bias = bias;
  EXPECT_EQ(Sampler({3, 1, 2}).draw(args).value(), 1);
}

TEST(Sample, DistributionIsThatOfTheLogits) {
  const std::vector<float> logits = {0, 1, -1, 0.5F, 2, -2, 0.25F, -0.5F, 1.5F, 0.75F};
  std::vector<double> weights;
  double total = 0.0;
  for (const float logit : logits) {
    weights.push_back(std::exp(logit / 0.8));
    total += weights.back();
  }
  Sampler sampler(logits);
  constexpr int kDraws = 20000;
  std::vector<int> seen(logits.size());
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    ++seen[sampler.draw({.temperature = 0.8F, .seed = 42, .counter = i}).value()];
  }
  double chi_squared = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double expected = kDraws * weights[i] / total;
    chi_squared += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  EXPECT_LT(chi_squared, 33.72);  // 9 degrees of freedom, one in 10,000
}

TEST(Sample, IsAFunctionOfSeedAndCounterAlone) {
  const std::vector<float> logits(50, 1.0F);
  Sampler one(logits);
  Sampler other(logits);
  EXPECT_TRUE(other.draw({.seed = 9}).has_value());
  std::set<std::int32_t> by_counter;
  std::set<std::int32_t> by_seed;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const std::uint64_t counter = 39 - i;  // in another order
    EXPECT_EQ(one.draw({.seed = 3, .counter = counter}).value(),
              other.draw({.seed = 3, .counter = counter}).value());
    by_counter.insert(one.draw({.seed = 3, .counter = i}).value());
    by_seed.insert(one.draw({.seed = i, .counter = 3}).value());
  }
  EXPECT_GT(by_counter.size(), 15U);
  EXPECT_GT(by_seed.size(), 15U);
  EXPECT_NE(uniform(std::uint64_t{1} << 32U, 0), uniform(0, 0));  // high words count
  EXPECT_NE(uniform(0, std::uint64_t{1} << 32U), uniform(0, 0));
}

TEST(Sample, MaskedTokensAreNeverDrawn) {
  EXPECT_THAT(Sampler({-kInfinity, 1, -kInfinity, 1}).support({}), ElementsAre(1, 3));
  EXPECT_THAT(Sampler({-1000, 0, -1000}).support({.temperature = 0.01F}), ElementsAre(1));
}

TEST(Sample, RefusesWhatHasNoDistribution) {
  for (const float temperature : {0.0F, 1.0F}) {
    for (const std::vector<float>& bad :
         {std::vector<float>{1, NAN, 2}, {NAN, NAN}, {-kInfinity, -kInfinity}, {1, kInfinity}}) {
      const Result<std::int32_t> drawn = Sampler(bad).draw({.temperature = temperature});
      ASSERT_FALSE(drawn.has_value());
      EXPECT_EQ(drawn.error().code(), Code::kInternal);
    }
  }
}

TEST(Sample, RefusesIdsOutsideTheVocabulary) {
  for (const std::int32_t id : {-1, 3, 1 << 30}) {
    const LogitBias bias[] = {{id, 1.0F}};
    SampleArgs args;
    args.logit_bias = bias;
    Result<std::int32_t> drawn = Sampler({1, 2, 3}).draw(args);
    ASSERT_FALSE(drawn.has_value());
    EXPECT_EQ(drawn.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(drawn.error().message(), HasSubstr("want ids in 0..2, got " + std::to_string(id)));
    const TokenCount counts[] = {{id, 1}};
    args = {};
    args.counts = counts;
    drawn = Sampler({1, 2, 3}).draw(args);
    ASSERT_FALSE(drawn.has_value());
    EXPECT_EQ(drawn.error().code(), Code::kInvalidArgument);
  }
}

TEST(LogSumExp, AgreesWithNumpyAndRefusesNaN) {
  const GoldenArrays golden("sample");
  EXPECT_NEAR(log_sum_exp(golden.get("lse_logits")).value(), golden.number("lse"), 1e-12);
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector<float>{1000, 1000}).value(), 1000 + std::log(2.0));
  EXPECT_EQ(log_sum_exp(std::vector<float>{1, NAN}).error().code(), Code::kInternal);
  EXPECT_EQ(log_sum_exp(std::vector<float>{-kInfinity}).error().code(), Code::kInternal);
  EXPECT_EQ(log_sum_exp(std::vector<float>{1, kInfinity}).error().code(), Code::kInternal);
}

}  // namespace
}  // namespace nibble::kernels
