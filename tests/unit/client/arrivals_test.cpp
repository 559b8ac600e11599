#include "client/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace nibble::client {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(ArrivalTimes, AllAtOnceWithoutARate) {
  EXPECT_THAT(arrival_times(3, kInf, 1.0, 0), testing::ElementsAre(0.0, 0.0, 0.0));
  EXPECT_THAT(arrival_times(0, 2.0, 1.0, 0), testing::IsEmpty());
}

TEST(ArrivalTimes, EvenGapsWhenNothingIsRandom) {
  EXPECT_THAT(arrival_times(4, 2.0, kInf, 0), testing::ElementsAre(0.5, 1.0, 1.5, 2.0));
}

TEST(ArrivalTimes, AscendAndEndAtCountOverRate) {
  for (const double burstiness : {0.1, 1.0, 20.0}) {
    const std::vector<double> times = arrival_times(1000, 8.0, burstiness, 7);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    EXPECT_NEAR(times.back(), 125.0, 1e-9) << burstiness;
    EXPECT_EQ(times, arrival_times(1000, 8.0, burstiness, 7));
    EXPECT_NE(times, arrival_times(1000, 8.0, burstiness, 8));
  }
}

// Of a gamma distribution of shape b and mean m the variance is m^2 / b. The estimate from 20,000
// draws deviates by sqrt((2 + 6 / b) / 20,000) of itself: five times that is allowed.
TEST(ArrivalTimes, GapsHaveTheVarianceOfTheirShape) {
  constexpr std::int32_t kCount = 20'000;
  for (const double shape : {0.5, 1.0, 4.0}) {
    const std::vector<double> times = arrival_times(kCount, 1.0, shape, 3);
    double squares = 0.0;
    for (std::size_t i = 1; i < times.size(); ++i) {
      const double gap = times[i] - times[i - 1] - 1.0;
      squares += gap * gap;
    }
    const double bound = 5.0 * std::sqrt((2.0 + 6.0 / shape) / kCount);
    EXPECT_NEAR(squares / kCount * shape, 1.0, bound) << shape;
  }
}

}  // namespace
}  // namespace nibble::client
