#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/token_request.h"

namespace nibble::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Logprob, IsTheLogSoftmaxOfTheToken) {
  const float logits[] = {1.0F, 3.0F, 2.0F};
  const double total = std::log(std::exp(1.0) + std::exp(3.0) + std::exp(2.0));
  const auto logprob = logprob_of(logits, 2, 0);
  ASSERT_TRUE(logprob.has_value());
  EXPECT_NEAR(logprob->logprob, 2.0 - total, 1e-7);
  EXPECT_TRUE(logprob->top.empty());
}

TEST(Logprob, ListsTheLargestFirstAndSmallerIdsOnTies) {
  const float logits[] = {2.0F, 5.0F, 5.0F, -kInfinity, 2.0F};
  const auto logprob = logprob_of(logits, 3, 4);
  ASSERT_TRUE(logprob.has_value());
  EXPECT_EQ(logprob->logprob, -kInfinity);
  ASSERT_EQ(logprob->top.size(), 4U);
  EXPECT_EQ(logprob->top[0].first, 1);
  EXPECT_EQ(logprob->top[1].first, 2);
  EXPECT_EQ(logprob->top[2].first, 0);
  EXPECT_EQ(logprob->top[3].first, 4);
  EXPECT_EQ(logprob_of(logits, 0, 99)->top.size(), 5U);
}

TEST(Logprob, RefusesRowsWithoutADistribution) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    const float logits[] = {1.0F, bad, 2.0F};
    EXPECT_EQ(logprob_of(logits, 0, 1).error().code(), Code::kInternal);
  }
}

}  // namespace
}  // namespace nibble::engine
