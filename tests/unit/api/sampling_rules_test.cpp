#include "api/sampling_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

namespace nibble {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(SamplingRules, EmptyFieldsTakeTheModelsDefaults) {
  const model::GenerationDefaults defaults{
      .temperature = 0.7F, .top_p = 0.8F, .top_k = 30, .min_p = 0.1F, .repetition_penalty = 1.2F};
  const auto rules = sampling_rules({}, defaults);
  ASSERT_TRUE(rules.has_value());
  EXPECT_EQ(rules->temperature, 0.7F);
  EXPECT_EQ(rules->top_p, 0.8F);
  EXPECT_EQ(rules->top_k, 30);
  EXPECT_EQ(rules->min_p, 0.1F);
  EXPECT_EQ(rules->repetition_penalty, 1.2F);
  EXPECT_EQ(rules->presence_penalty, 0.0F);
}

TEST(SamplingRules, GivenFieldsOverruleTheModel) {
  const model::GenerationDefaults defaults{.temperature = 0.7F, .top_k = 30};
  const auto rules = sampling_rules({.temperature = 0.0F, .top_k = 0, .seed = 5}, defaults);
  ASSERT_TRUE(rules.has_value());
  EXPECT_EQ(rules->temperature, 0.0F);
  EXPECT_EQ(rules->top_k, 0);
  EXPECT_EQ(rules->seed, 5U);
}

TEST(SamplingRules, ModelThatDoesNotSampleIsGreedyUnlessAsked) {
  const model::GenerationDefaults defaults{.temperature = 0.7F, .do_sample = false};
  EXPECT_EQ(sampling_rules({}, defaults)->temperature, 0.0F);
  EXPECT_EQ(sampling_rules({.temperature = 0.5F}, defaults)->temperature, 0.5F);
}

TEST(SamplingRules, MissingSeedsDiffer) {
  std::set<std::uint64_t> seeds;
  for (int i = 0; i < 50; ++i) {
    seeds.insert(sampling_rules({}, {})->seed);
  }
  EXPECT_EQ(seeds.size(), 50U);
  EXPECT_LT(*seeds.rbegin(), std::uint64_t{1} << 53U) << "a JSON reader would round it";
}

TEST(SamplingRules, RefusesWhatIsOutOfRangeByField) {
  using Set = std::function<void(SamplingParams&, float)>;
  struct Case {
    const char* field;
    Set set;
    std::vector<float> good;
    std::vector<float> bad;
  };
  const Case cases[] = {
      {"temperature", [](auto& p, float v) { p.temperature = v; }, {0, 1, 100}, {-0.1F, 101}},
      {"top_p", [](auto& p, float v) { p.top_p = v; }, {0.01F, 1}, {0, -1, 1.01F}},
      {"min_p", [](auto& p, float v) { p.min_p = v; }, {0, 0.5F, 1}, {-0.1F, 1.1F}},
      {"repetition_penalty",
       [](auto& p, float v) { p.repetition_penalty = v; },
       {0.5F, 1, 2},
       {0, -1}},
      {"presence_penalty",
       [](auto& p, float v) { p.presence_penalty = v; },
       {-2, 2},
       {-2.1F, 2.1F}},
      {"frequency_penalty",
       [](auto& p, float v) { p.frequency_penalty = v; },
       {-2, 2},
       {-2.1F, 2.1F}},
      {"logit_bias",
       [](auto& p, float v) {
         p.logit_bias = {{3, v}};
       },
       {-100, 100},
       {-101, 101, -INFINITY}},
  };
  for (const Case& c : cases) {
    SamplingParams params;
    for (const float value : c.good) {
      c.set(params, value);
      EXPECT_TRUE(sampling_rules(params, {}).has_value()) << c.field << " " << value;
    }
    std::vector<float> bad = c.bad;
    bad.insert(bad.end(), {NAN, INFINITY});
    for (const float value : bad) {
      c.set(params, value);
      const auto refused = sampling_rules(params, {});
      ASSERT_FALSE(refused.has_value()) << c.field << " " << value;
      EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
      EXPECT_THAT(refused.error().message(), StartsWith(c.field));
      EXPECT_THAT(refused.error().message(), HasSubstr("found"));
    }
  }
  EXPECT_FALSE(sampling_rules({.top_k = -1}, {}).has_value());
  EXPECT_FALSE(sampling_rules({.top_k = (1 << 24) + 1}, {}).has_value());
}

}  // namespace
}  // namespace nibble
