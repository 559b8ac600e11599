#include "model/sample_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace nibble::model {
namespace {

using ::testing::HasSubstr;

SampleBatch batch_of(std::size_t rows, std::size_t counts, std::size_t biases) {
  SampleBatch batch;
  for (std::size_t i = 0; i < rows; ++i) {
    batch.rows.push_back({.seed = 100 + i});
  }
  for (std::size_t i = 0; i < counts; ++i) {
    batch.counts.push_back({.id = static_cast<std::int32_t>(i), .in_output = 2});
  }
  for (std::size_t i = 0; i < biases; ++i) {
    batch.logit_bias.push_back({.id = static_cast<std::int32_t>(i), .bias = 0.5F});
  }
  return batch;
}

// The block of the largest step is as large as any mix of its entries needs.
TEST(SampleBlock, ACopyHoldsEveryEntryWhereItsPointersSay) {
  constexpr std::size_t kMost = kMostSampleEntries;
  for (const auto& [counts, biases] : {std::pair<std::size_t, std::size_t>{0, 0},
                                       {1, 1},
                                       {kMost, 0},
                                       {0, kMost},
                                       {kMost - 1, 1}}) {
    const SampleBatch batch = batch_of(3, counts, biases);
    std::vector<std::byte> host(static_cast<std::size_t>(SampleBlock::bytes(3)));
    std::vector<std::byte> seen(host.size());
    const auto block = SampleBlock::fill(batch, 3, host.data(), seen.data());
    ASSERT_TRUE(block.has_value()) << block.error().message();
    ASSERT_LE(block->used_bytes, static_cast<std::int64_t>(host.size()));
    std::copy_n(host.begin(), block->used_bytes, seen.begin());
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(block->rows[i].seed, 100 + i);
    }
    for (std::size_t i = 0; i < counts; ++i) {
      ASSERT_EQ(block->counts[i].id, static_cast<std::int32_t>(i));
    }
    for (std::size_t i = 0; i < biases; ++i) {
      ASSERT_EQ(block->logit_bias[i].id, static_cast<std::int32_t>(i));
      ASSERT_EQ(block->logit_bias[i].bias, 0.5F);
    }
  }
}

TEST(SampleBlock, RefusesAnotherNumberOfRowsAndTooManyEntries) {
  std::vector<std::byte> host(static_cast<std::size_t>(SampleBlock::bytes(3)));
  const auto rows = SampleBlock::fill(batch_of(2, 0, 0), 3, host.data(), host.data());
  ASSERT_FALSE(rows.has_value());
  EXPECT_EQ(rows.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(rows.error().message(), HasSubstr("want 3 rows"));
  const auto entries =
      SampleBlock::fill(batch_of(3, kMostSampleEntries, 1), 3, host.data(), host.data());
  ASSERT_FALSE(entries.has_value());
  EXPECT_THAT(entries.error().message(), HasSubstr("131072"));
}

}  // namespace
}  // namespace nibble::model
