#include "api/memory_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "api/commands/presets.h"

namespace nibble {
namespace {

using model::CacheGroup;
using testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30U;

const model::ModelConfig& large() {
  static const commands::Preset kPreset = *commands::find_preset("gpt-oss-20b");
  return kPreset.config;
}

TEST(MemoryFit, WholeContextWhenItFits) {
  const auto plan = plan_engine({}, large(), 13 * kGiB, 64 * kGiB);
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_EQ(plan->model.max_position, 131072);
  EXPECT_EQ(plan->model.num_pages[0], 131072 / 64);
  EXPECT_EQ(plan->limits.num_pages[0], plan->model.num_pages[0]);
  EXPECT_EQ(plan->limits.num_pages[1], engine::window_pages(plan->limits));
  EXPECT_EQ(plan->limits.window, 128);
}

// 20b: 12 full layers, 8 heads of 64, K and V in bf16: 24,576 bytes a token.
TEST(MemoryFit, ContextIsLoweredToWhatFits) {
  model::ModelOptions options{.page_size = 64};
  ASSERT_EQ(page_bytes(large(), options, CacheGroup::kFull), 64 * 24576);
  const std::int64_t page = 64 * 24576;
  const auto whole = plan_engine({}, large(), 13 * kGiB, 64 * kGiB);
  const std::int64_t window =
      whole->model.num_pages[1] * page_bytes(large(), whole->model, CacheGroup::kWindow);
  const auto plan = plan_engine({}, large(), 13 * kGiB, 14 * kGiB + window + 100 * page);
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_EQ(plan->model.max_position, 6400);
  EXPECT_EQ(plan->model.num_pages[0], 100);
  const auto two = plan_engine({.max_num_seqs = 2}, large(), 13 * kGiB, 16 * kGiB);
  ASSERT_TRUE(two.has_value());
  EXPECT_LE((two->model.num_pages[0] * page) +
                two->model.num_pages[1] * page_bytes(large(), two->model, CacheGroup::kWindow),
            2 * kGiB);
  EXPECT_GE(two->model.num_pages[0] * 64, 2 * two->model.max_position) << "both at full length";
}

TEST(MemoryFit, WantedContextThatDoesNotFitIsRefusedWithNumbers) {
  const auto refused = plan_engine({.max_model_len = 131072}, large(), 13 * kGiB, 16 * kGiB);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kExhausted);
  for (const char* part : {"131072 tokens", "16384 MiB available", "13312 MiB of weights"}) {
    EXPECT_THAT(refused.error().message(), HasSubstr(part));
  }
  EXPECT_TRUE(plan_engine({.max_model_len = 4096}, large(), 13 * kGiB, 16 * kGiB).has_value());
}

TEST(MemoryFit, RefusesAModelThatIsLargerThanTheMachine) {
  for (const std::int64_t available : {std::int64_t{0}, 8 * kGiB, 13 * kGiB}) {
    const auto refused = plan_engine({}, large(), 13 * kGiB, available);
    ASSERT_FALSE(refused.has_value()) << available;
    EXPECT_EQ(refused.error().code(), Code::kExhausted);
  }
}

TEST(MemoryFit, ActivationDecidesTheCacheAndRowsSufficeForEverySequence) {
  const auto plan = plan_engine({.activation = Activation::kF32, .max_num_seqs = 100}, large(),
                                13 * kGiB, 900 * kGiB);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->model.kv_dtype, DType::kF32);
  EXPECT_EQ(plan->limits.max_logit_rows, 100);
  EXPECT_EQ(plan_engine({}, large(), 0, 900 * kGiB)->model.kv_dtype, DType::kBF16);
}

TEST(MemoryFit, RefusesOptionsOutOfRange) {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  const EngineOptions bad[] = {
      {.max_model_len = -1},  {.max_model_len = 131073}, {.max_num_seqs = 0},
      {.max_num_seqs = kMax}, {.max_batch_tokens = 0},   {.max_batch_tokens = kMax},
      {.page_size = 0},       {.page_size = kMax},       {.num_threads = -1},
  };
  for (const EngineOptions& options : bad) {
    const auto refused = plan_engine(options, large(), 0, 900 * kGiB);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace nibble
