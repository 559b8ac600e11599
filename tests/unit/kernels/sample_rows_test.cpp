// The reference of many rows beside sample() row by row.
#include "kernels/sample/sample_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/sample/pick_ids.h"
#include "support/counter_rng.h"

namespace nibble::kernels {
namespace {

using ::testing::ElementsAre;
using testing_support::CounterRng;

constexpr std::int32_t kVocab = 50;

TEST(SampleRows, EachRowIsSampledByItsOwnEntry) {
  const std::vector<TokenCount> counts = {{3, 1}, {4, 0}, {9, 5}};
  const std::vector<LogitBias> bias = {{7, 3.0F}, {7, -1.0F}, {2, -4.0F}};
  std::vector<SampleRow> rows = {
      {.temperature = 0.0F},
      {.seed = 5, .counter = 8, .top_k = 4},
      {.seed = 5, .counter = 9, .top_p = 0.8F, .repetition_penalty = 1.4F, .num_counts = 3},
      {.seed = 6, .min_p = 0.1F, .presence_penalty = 1.0F, .first_count = 1, .num_counts = 2},
      {.seed = 6, .frequency_penalty = 0.5F, .num_counts = 1, .first_bias = 1, .num_bias = 2}};
  const auto num_rows = static_cast<std::int32_t>(rows.size());
  const std::vector<float> logits = CounterRng(2).normals(std::int64_t{num_rows} * kVocab);
  std::vector<std::int32_t> ids(rows.size(), -7);
  ASSERT_TRUE(sample_rows({.logits = logits.data(),
                           .rows = rows.data(),
                           .counts = counts.data(),
                           .logit_bias = bias.data(),
                           .ids = ids.data(),
                           .num_rows = num_rows,
                           .vocab = kVocab},
                          {})
                  .ok());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SampleRow& row = rows[i];
    const auto at = logits.begin() + static_cast<std::ptrdiff_t>(i * kVocab);
    std::vector<float> own(at, at + kVocab);
    std::vector<float> scratch(kVocab);
    std::vector<std::int32_t> order(kVocab);
    const auto want =
        sample({.logits = own,
                .counts = std::span(counts).subspan(static_cast<std::size_t>(row.first_count),
                                                    static_cast<std::size_t>(row.num_counts)),
                .logit_bias = std::span(bias).subspan(static_cast<std::size_t>(row.first_bias),
                                                      static_cast<std::size_t>(row.num_bias)),
                .temperature = row.temperature,
                .top_k = row.top_k,
                .top_p = row.top_p,
                .min_p = row.min_p,
                .repetition_penalty = row.repetition_penalty,
                .presence_penalty = row.presence_penalty,
                .frequency_penalty = row.frequency_penalty,
                .seed = row.seed,
                .counter = row.counter,
                .scratch = scratch,
                .order = order});
    ASSERT_TRUE(want.has_value());
    EXPECT_EQ(ids[i], *want) << i;
  }
}

TEST(SampleRows, ARowWithoutADistributionGetsNoToken) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {1, 2, NAN, 0, kInfinity, 0, -kInfinity, -kInfinity, 3, 2};
  const std::vector<SampleRow> rows(5, {.temperature = 0.0F});
  std::vector<std::int32_t> ids(5);
  const SampleRowsArgs args{
      .logits = logits.data(), .rows = rows.data(), .ids = ids.data(), .num_rows = 5, .vocab = 2};
  ASSERT_TRUE(sample_rows_ref(args).ok());
  EXPECT_THAT(ids, ElementsAre(1, -1, -1, -1, 0));
  SampleRowsArgs bad = args;
  bad.vocab = 0;
  EXPECT_EQ(sample_rows(bad, {}).code(), Code::kInvalidArgument);
}

TEST(PickIds, TakesTheSampledTokenWhereAnIdStandsForIt) {
  std::vector<std::int32_t> ids = {5, -1, -3, 0, -2, -4};
  const std::vector<std::int32_t> sampled = {70, -1, 90};
  ASSERT_TRUE(
      pick_ids({.ids = ids.data(), .sampled = sampled.data(), .count = 6, .num_sampled = 3}, {})
          .ok());
  EXPECT_THAT(ids, ElementsAre(5, 70, 90, 0, -1, -1));
}

}  // namespace
}  // namespace nibble::kernels
