#include "kernels/route/top_k.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "support/counter_rng.h"
#include "support/golden_arrays.h"
#include "support/tolerance.h"
#include "unit/kernels/kernel_tester.h"

namespace nibble::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using testing_support::CounterRng;
using testing_support::ErrorBound;
using testing_support::GoldenArrays;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One routing with poisoned results.
struct TopKCase {
  TopKCase(std::vector<float> given, std::int32_t experts, std::int32_t k)
      : logits(std::move(given)),
        rows(static_cast<std::int32_t>(logits.size()) / experts),
        ids(static_cast<std::size_t>(rows) * k, -7),
        weights(ids.size(), NAN),
        args{logits.data(), ids.data(), weights.data(), rows, rows, experts, k} {}
  TopKCase(const TopKCase&) = delete;
  TopKCase& operator=(const TopKCase&) = delete;

  std::vector<float> logits;
  std::int32_t rows;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  TopKArgs args;
};

Status run(const Instance<TopKArgs>& row, const TopKCase& input, ThreadPool& pool = pools()[1]) {
  return row.run(input.args, {&pool, nullptr});
}

TEST(TopK, ReferenceAgreesWithNumpy) {
  const GoldenArrays golden("top_k");
  const TopKCase have(golden.get("logits"), golden.size(1), golden.size(2));
  ASSERT_TRUE(top_k_ref(have.args).ok());
  EXPECT_EQ(have.ids, golden.get<std::int32_t>("ids"));
  EXPECT_THAT(have.weights, Pointwise(FloatEq(), golden.get("weights")));
}

// exp of a difference d: |d| units of its argument's rounding and 4 of its own; the sum of top_k
// such terms; the quotient.
std::vector<ErrorBound> weight_bounds(const TopKCase& want) {
  std::vector<ErrorBound> out;
  for (const float weight : want.weights) {
    const double distance = weight > 0.0F ? std::abs(std::log(double{weight})) : 104.0;
    const double count = 2.0 * (distance + 4.0) + want.args.top_k + 2.0;
    out.push_back(testing_support::roundings(count, weight) + ErrorBound{0x1p-126, 0x1p-126});
  }
  return out;
}

TEST(TopK, InstancesAgreeWithTheReferenceForEveryNumberOfExperts) {
  for_each_runnable(top_k_instances(), [](const Instance<TopKArgs>& row) {
    for (const std::int32_t experts :
         {1, 2, 3, 5, 31, 32, 33, 127, 128, 129, 255, 256, 257, 384, 1023, 1024, 1025}) {
      for (const std::int32_t k : {1, 2, 4, 8, experts}) {
        if (k > experts) {
          continue;
        }
        for (const std::int32_t rows : {0, 1, 2, 7, 17}) {
          const auto logits = CounterRng(7).normals(std::int64_t{rows} * experts, 4.0F);
          const TopKCase want(logits, experts, k);
          const TopKCase have(logits, experts, k);
          ASSERT_TRUE(top_k_ref(want.args).ok());
          ASSERT_TRUE(run(row, have).ok());
          ASSERT_EQ(have.ids, want.ids) << experts << " experts, top " << k;
          testing_support::expect_close(have.weights, want.weights, weight_bounds(want),
                                        fmt::format("{} experts, top {}", experts, k));
        }
      }
    }
  });
}

TEST(TopK, TiesGoToTheSmallerIdAndStayFinite) {
  for_each_runnable(top_k_instances(), [](const Instance<TopKArgs>& row) {
    const TopKCase same(std::vector<float>(64, -40.0F), 64, 8);
    ASSERT_TRUE(run(row, same).ok());
    EXPECT_THAT(same.ids, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_THAT(same.weights, ::testing::Each(0.125F));
    const TopKCase border({1, 2, 3, 2, 2}, 5, 2);  // three equal ones, one place
    ASSERT_TRUE(run(row, border).ok());
    EXPECT_THAT(border.ids, ElementsAre(2, 1));
    const TopKCase zeros({-0.0F, 0.0F, -0.0F}, 3, 2);  // equal, whatever the sign
    ASSERT_TRUE(run(row, zeros).ok());
    EXPECT_THAT(zeros.ids, ElementsAre(0, 1));
  });
}

TEST(TopK, WeightsAreASoftmaxOverTheChosenOnly) {
  for_each_runnable(top_k_instances(), [](const Instance<TopKArgs>& row) {
    const TopKCase input({3, 3, 3, 3, 2}, 5, 2);
    ASSERT_TRUE(run(row, input).ok());
    EXPECT_THAT(input.weights, ElementsAre(0.5F, 0.5F));
    const TopKCase far({0, 3e38F, -3e38F}, 3, 3);
    ASSERT_TRUE(run(row, far).ok());
    EXPECT_THAT(far.ids, ElementsAre(1, 0, 2));
    EXPECT_THAT(far.weights, ElementsAre(1.0F, 0.0F, 0.0F));
  });
}

TEST(TopK, PaddingRowsGetDistinctIdsAndNoWeight) {
  for_each_runnable(top_k_instances(), [](const Instance<TopKArgs>& row) {
    for (const float poison : {NAN, kInfinity, -kInfinity, 1.0F}) {
      TopKCase input({4, 1, 3, 2, 1, 2, 3, 4, poison, poison, poison, poison}, 4, 2);
      input.args.num_valid_rows = 2;
      ASSERT_TRUE(run(row, input).ok());
      EXPECT_THAT(input.ids, ElementsAre(0, 2, 3, 2, 0, 1));
      EXPECT_GT(input.weights[2], 0.5F);
      EXPECT_EQ(input.weights[4], 0.0F);
      EXPECT_EQ(input.weights[5], 0.0F);
    }
  });
}

TEST(TopK, AFaultyRowIsNamed) {
  for_each_runnable(top_k_instances(), [](const Instance<TopKArgs>& row) {
    const std::vector<float> rows[] = {
        {1, NAN, 3}, {NAN, NAN, NAN}, {1, 2, kInfinity}, {-kInfinity, -kInfinity, -kInfinity}};
    for (const std::vector<float>& bad : rows) {
      std::vector<float> logits = {1, 2, 3};
      logits.insert(logits.end(), bad.begin(), bad.end());
      const TopKCase input(logits, 3, 2);
      const Status status = run(row, input);
      EXPECT_EQ(status.code(), Code::kInternal);
      EXPECT_THAT(status.message(), HasSubstr("row 1"));
    }
  });
}

TEST(TopK, MinusInfIsChosenLastWithoutWeight) {
  for_each_runnable(top_k_instances(), [](const Instance<TopKArgs>& row) {
    const TopKCase input({-kInfinity, 5, -kInfinity, -kInfinity}, 4, 3);
    ASSERT_TRUE(run(row, input).ok());
    EXPECT_THAT(input.ids, ElementsAre(1, 0, 2));
    EXPECT_THAT(input.weights, ElementsAre(1.0F, 0.0F, 0.0F));
  });
}

TEST(TopK, ARowDependsNeitherOnItsBatchNorOnTheWorkers) {
  for_each_runnable(top_k_instances(), [](const Instance<TopKArgs>& row) {
    const auto logits = CounterRng(3).normals(17 * 33);
    const TopKCase whole(logits, 33, 4);
    ASSERT_TRUE(run(row, whole, pools()[0]).ok());
    for (ThreadPool& pool : pools()) {
      const TopKCase again(logits, 33, 4);
      ASSERT_TRUE(run(row, again, pool).ok());
      EXPECT_EQ(again.ids, whole.ids);
      EXPECT_TRUE(same_bits(again.weights, whole.weights));
    }
    for (std::size_t i = 0; i < 17; ++i) {
      const TopKCase alone({logits.begin() + 33 * i, logits.begin() + 33 * (i + 1)}, 33, 4);
      ASSERT_TRUE(run(row, alone).ok());
      EXPECT_TRUE(std::equal(alone.ids.begin(), alone.ids.end(), whole.ids.begin() + 4 * i));
      EXPECT_TRUE(same_bits(alone.weights, std::span(whole.weights).subspan(4 * i, 4)));
    }
  });
}

TEST(TopK, RefusesWhatItCannotDo) {
  TopKCase input({1, 2, 3, 4}, 4, 2);
  const Exec exec{&pools()[0], nullptr};
  EXPECT_TRUE(top_k(input.args, exec).ok());
  input.args.num_valid_rows = 2;
  EXPECT_THAT(top_k(input.args, exec).message(), HasSubstr("got 2 of 1"));
  input.args.num_valid_rows = 1;
  for (const std::int32_t k : {0, 5}) {
    input.args.top_k = k;
    EXPECT_THAT(top_k(input.args, exec).message(), HasSubstr("want 1..4"));
  }
}

}  // namespace
}  // namespace nibble::kernels
