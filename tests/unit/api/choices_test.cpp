#include "nibble/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace nibble {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Choices, EachHasASeedOfItsOwnThatFollowsFromTheFirst) {
  Request request{.prompt = TokenPrompt{{1, 2}}, .max_tokens = 7};
  request.sampling.seed = 42;
  const auto choices = choices_of(request, 50);
  ASSERT_EQ(choices.size(), 50U);
  std::set<std::uint64_t> seeds;
  for (const Request& choice : choices) {
    EXPECT_EQ(choice.max_tokens, 7);
    seeds.insert(choice.sampling.seed.value());
  }
  EXPECT_EQ(seeds.size(), 50U);
  EXPECT_EQ(choices[0].sampling.seed, 42U);
  EXPECT_LT(*std::next(seeds.begin(), 25), std::uint64_t{1} << 53U) << "exact in JSON";
  EXPECT_EQ(choices_of(request, 3)[2].sampling.seed, choices[2].sampling.seed);
  request.sampling.seed = 43;
  EXPECT_NE(choices_of(request, 3)[2].sampling.seed, choices[2].sampling.seed);
}

TEST(Choices, WithoutASeedEachDrawsOne) {
  for (const Request& choice : choices_of({.prompt = TokenPrompt{{1}}}, 3)) {
    EXPECT_FALSE(choice.sampling.seed.has_value());
  }
}

TEST(Choices, TheLikeliestComeFirstAndTheEarlierOfEquals) {
  std::vector<Response> answers(4);
  const double sums[] = {-9.0, -3.0, -2.5, -3.0};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    answers[i].cumulative_logprob = sums[i];
  }
  EXPECT_THAT(best_choices(answers, 1), ElementsAre(2));
  EXPECT_THAT(best_choices(answers, 3), ElementsAre(2, 1, 3));
  EXPECT_THAT(best_choices(answers, 9), ElementsAre(2, 1, 3, 0));
  EXPECT_THAT(best_choices({}, 2), IsEmpty());
}

}  // namespace
}  // namespace nibble
