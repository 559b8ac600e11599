#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/sample/row.h"

namespace nibble::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Around the lanes and blocks of the loops.
constexpr std::size_t kSizes[] = {1, 2, 15, 16, 17, 511, 512, 513, 1023, 1024, 1025, 5000};

TEST(SampleRow, LargestIsTheFirstOfTheLargest) {
  for (const std::size_t size : kSizes) {
    for (std::size_t at = 0; at < size; at += 1 + size / 40) {
      std::vector<float> row(size, -3.0F);
      row[at] = 2.0F;
      row[size - 1] = 2.0F;
      EXPECT_EQ(row_largest(row), at) << size;
      row[size / 2] = NAN;
      EXPECT_EQ(row_largest(row), -1) << size;
    }
    const std::vector<float> nothing(size, -kInfinity);
    EXPECT_EQ(row_largest(nothing), -1);
    std::vector<float> one = nothing;
    one[size - 1] = -std::numeric_limits<float>::max();
    EXPECT_EQ(row_largest(one), size - 1);
  }
  EXPECT_EQ(row_largest({}), -1);
  EXPECT_EQ(row_largest(std::vector<float>{-1.0F, -0.0F, 0.0F}), 1);
  EXPECT_EQ(row_largest(std::vector<float>{0.0F, kInfinity, kInfinity}), 1);
}

// The series leaves 6e-9; each of its eight steps rounds to 2^-24 of a sum near 1, of which the
// later ones, multiplied by |r| < 0.35 in between, count for less than 3 in all; the reduction and
// the last product add less than 1.
TEST(SampleRow, WeightsAreExponentialsWithinFourUnits) {
  constexpr double kBound = 4 * 0x1p-24;
  std::vector<float> row;
  for (float x = 0.0F; x > -87.0F; x = x * 1.00003F - 1e-6F) {
    row.push_back(x);
  }
  ASSERT_GT(row.size(), 100'000U);
  std::vector<float> weights(row.size());
  for (const float temperature : {1.0F, 0.7F, 100.0F}) {
    row_weights(row, 0.0F, temperature, weights);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const float quotient = row[i] / temperature;
      const double want = std::exp(static_cast<double>(quotient));
      if (quotient >= -87.0F) {
        ASSERT_NEAR(weights[i] / want, 1.0, kBound) << quotient;
      } else {
        ASSERT_EQ(weights[i], 0.0F) << quotient;
      }
    }
  }
}

TEST(SampleRow, WeightsAtTheEnds) {
  const std::vector<float> row = {
      3.0F, 3.0F - 87.0F, 3.0F - 87.5F, -1e30F, -std::numeric_limits<float>::max(), -kInfinity};
  std::vector<float> weights(row.size(), NAN);
  row_weights(row, 3.0F, 1.0F, weights);
  EXPECT_EQ(weights[0], 1.0F);
  EXPECT_GT(weights[1], 0.0F);
  for (std::size_t i = 2; i < row.size(); ++i) {
    EXPECT_EQ(weights[i], 0.0F) << i;
  }
}

// FNV-1a over the bytes of exp(-i / 64), i = 0..5599, as numpy computes them step by step in
// float32: one answer on every processor.
TEST(SampleRow, WeightsHaveTheBitsOfPlainFloat32) {
  std::vector<float> row(5600);
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = -static_cast<float>(i) / 64.0F;
  }
  std::vector<float> weights(row.size());
  row_weights(row, 0.0F, 1.0F, weights);
  std::uint64_t hash = 14695981039346656037U;
  for (const float weight : weights) {
    auto bits = std::bit_cast<std::uint32_t>(weight);
    for (int byte = 0; byte < 4; ++byte, bits >>= 8) {
      hash = (hash ^ (bits & 0xFF)) * 1099511628211U;
    }
  }
  EXPECT_EQ(hash, 0x3e68f7c905f62ae1U);
}

// Whatever stands beside it in a vector.
TEST(SampleRow, AWeightDependsOnItsLogitAlone) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> draw(-40.0F, 0.0F);
  std::vector<float> row(1000);
  for (float& x : row) {
    x = draw(random);
  }
  std::vector<float> weights(row.size());
  row_weights(row, 0.0F, 0.9F, weights);
  for (std::size_t i = 0; i < row.size(); ++i) {
    float alone = 0.0F;
    row_weights({&row[i], 1}, 0.0F, 0.9F, {&alone, 1});
    ASSERT_EQ(alone, weights[i]);
  }
}

TEST(SampleRow, FirstAboveFollowsTheSumInOrder) {
  std::mt19937 random(4);
  for (const std::size_t size : kSizes) {
    std::vector<float> row(size);
    for (float& weight : row) {  // sums of these are exact, so is the border
      weight = static_cast<float>(random() % 3);
    }
    double total = 0.0;
    for (const float weight : row) {
      total += weight;
    }
    EXPECT_EQ(row_sum(row), total);
    for (double target = -1.0; target <= total + 1; target += std::max(1.0, total / 300)) {
      double sum = 0.0;
      std::int32_t want = 0;
      for (std::size_t i = 0; i < size && !(sum > target && sum > 0); ++i) {
        sum += row[i];
        want = row[i] > 0.0F ? static_cast<std::int32_t>(i) : want;
      }
      EXPECT_EQ(row_first_above(row, target), want) << size << " " << target;
    }
  }
  EXPECT_EQ(row_first_above(std::vector<float>{0.0F, 0.0F}, 0.0), 0);
  EXPECT_EQ(row_first_above(std::vector<float>{0.0F, 1.0F, 0.0F}, 1.0), 1)
      << "rounded past the end";
}

}  // namespace
}  // namespace nibble::kernels
