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
  EXPECT_EQ(plan->limits.num_pages[1], engine::window_pages(plan->limits) + 131072 / 64 / 4);
  EXPECT_EQ(plan->limits.window, 128);
  EXPECT_TRUE(plan->limits.shares_prefixes);
}

TEST(MemoryFit, PrefixesTakeWhatIsLeft) {
  const auto off = plan_engine({.enable_prefix_caching = false}, large(), 13 * kGiB, 64 * kGiB);
  ASSERT_TRUE(off.has_value());
  EXPECT_FALSE(off->limits.shares_prefixes);
  EXPECT_EQ(off->limits.num_pages[1], engine::window_pages(off->limits));
  const auto small = plan_engine({.max_model_len = 8192}, large(), 13 * kGiB, 64 * kGiB);
  EXPECT_EQ(small->limits.num_pages[1], engine::window_pages(small->limits) + 64) << "4,096 tokens";
  const auto tiny = plan_engine({.max_model_len = 640}, large(), 13 * kGiB, 64 * kGiB);
  EXPECT_EQ(tiny->limits.num_pages[1], engine::window_pages(tiny->limits) + 10);
  // An explicit context is not refused for their sake: here 9 pages are left.
  const std::int64_t page = std::int64_t{64} * 24576;
  const std::int64_t needed = (8192 / 64 + engine::window_pages(small->limits)) * page;
  const auto tight =
      plan_engine({.max_model_len = 8192}, large(), 13 * kGiB, 14 * kGiB + needed + 9 * page);
  ASSERT_TRUE(tight.has_value()) << tight.error().message();
  EXPECT_EQ(tight->limits.num_pages[0], 128);
  EXPECT_EQ(tight->limits.num_pages[1], engine::window_pages(tight->limits) + 9);
}

// Not every sequence is at full length at once, and one that lacks pages waits.
TEST(MemoryFit, SequencesShareThePages) {
  const EngineOptions options{.max_model_len = 16384, .max_num_seqs = 64};
  const auto roomy = plan_engine(options, large(), 13 * kGiB, 900 * kGiB);
  ASSERT_TRUE(roomy.has_value());
  EXPECT_EQ(roomy->limits.num_pages[0], 64 * 256);
  const auto tight = plan_engine(options, large(), 13 * kGiB, 17 * kGiB);
  ASSERT_TRUE(tight.has_value()) << tight.error().message();
  EXPECT_EQ(tight->model.max_position, 16384);
  EXPECT_GT(tight->limits.num_pages[0], 4 * 256);
  EXPECT_LT(tight->limits.num_pages[0], 8 * 256);
}

// A device must hold a step's activations beside the pages: those of 8,192 rows are more than a
// GiB.
TEST(MemoryFit, ADeviceKeepsRoomForItsSteps) {
  for (const std::int32_t max_batch_tokens : {512, 8192, 32768}) {
    const EngineOptions options{.max_num_seqs = 256, .max_batch_tokens = max_batch_tokens};
    const auto plan = plan_engine(options, large(), 13 * kGiB, 100 * kGiB, MemoryOf::kDevice);
    ASSERT_TRUE(plan.has_value()) << plan.error().message();
    std::int64_t bytes = 13 * kGiB + model::device_step_bytes(large(), plan->model);
    for (const auto group : {CacheGroup::kFull, CacheGroup::kWindow}) {
      bytes +=
          plan->model.num_pages[static_cast<int>(group)] * page_bytes(large(), plan->model, group);
    }
    EXPECT_LE(bytes, 100 * kGiB) << max_batch_tokens;
    EXPECT_GE(bytes, 98 * kGiB) << max_batch_tokens;
  }
}

TEST(MemoryFit, StepsAreLongerOnADevice) {
  const auto rows = [](std::int32_t asked, std::int64_t gib, MemoryOf memory) {
    const auto plan =
        plan_engine({.max_batch_tokens = asked}, large(), 13 * kGiB, gib * kGiB, memory);
    EXPECT_EQ(plan->model.max_batch_tokens, plan->limits.max_batch_tokens);
    return plan->model.max_batch_tokens;
  };
  EXPECT_EQ(rows(0, 100, MemoryOf::kHost), 512);
  EXPECT_EQ(rows(0, 100, MemoryOf::kDevice), 8192);
  EXPECT_EQ(rows(100, 100, MemoryOf::kHost), 100);
  EXPECT_EQ(rows(100, 100, MemoryOf::kDevice), 100);
}

// A small card keeps most of what the weights leave for the context.
TEST(MemoryFit, LongStepsTakeAQuarterOfWhatIsLeftAtMost) {
  std::int32_t before = 512;
  for (std::int64_t gib = 14; gib <= 32; ++gib) {
    const auto plan = plan_engine({}, large(), 13 * kGiB, gib * kGiB, MemoryOf::kDevice);
    ASSERT_TRUE(plan.has_value()) << plan.error().message();
    const std::int32_t rows = plan->model.max_batch_tokens;
    EXPECT_GE(rows, before);
    before = rows;
    model::ModelOptions longest = plan->model;
    longest.max_position = large().max_position;
    const std::int64_t left = (gib - 13) * kGiB - kGiB / 2;
    EXPECT_TRUE(rows == 512 || model::device_step_bytes(large(), longest) <= left / 4) << gib;
    longest.max_batch_tokens = 2 * rows;
    EXPECT_TRUE(rows == 8192 || model::device_step_bytes(large(), longest) > left / 4) << gib;
  }
  EXPECT_EQ(before, 8192);
}

// 20b: 12 full layers, 8 heads of 64, K and V in bf16: 24,576 bytes a token.
TEST(MemoryFit, ContextIsLoweredToWhatFits) {
  model::ModelOptions options{.page_size = 64};
  ASSERT_EQ(page_bytes(large(), options, CacheGroup::kFull), 64 * 24576);
  const std::int64_t page = std::int64_t{64} * 24576;
  const auto whole = plan_engine({}, large(), 13 * kGiB, 64 * kGiB);
  const std::int64_t window = engine::window_pages(whole->limits) * page;
  const auto plan = plan_engine({}, large(), 13 * kGiB, 14 * kGiB + window + 100 * page);
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_EQ(plan->model.num_pages[0], 80);
  EXPECT_EQ(plan->model.max_position, 80 * 64);
  EXPECT_EQ(plan->model.num_pages[1], engine::window_pages(plan->limits) + 20) << "for prefixes";
  const auto bare = plan_engine({.enable_prefix_caching = false}, large(), 13 * kGiB,
                                14 * kGiB + window + 100 * page);
  EXPECT_EQ(bare->model.max_position, 6400);
  for (const std::int32_t max_num_seqs : {1, 2, 30}) {
    const auto many = plan_engine({.max_num_seqs = max_num_seqs}, large(), 13 * kGiB, 16 * kGiB);
    ASSERT_TRUE(many.has_value());
    EXPECT_LE((many->model.num_pages[0] + many->model.num_pages[1]) * page, 2 * kGiB);
    EXPECT_GE(many->model.num_pages[0] * 64, many->model.max_position) << "one at full length";
  }
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

// A key of 64 channels: 65 bytes with its scale instead of 128.
TEST(MemoryFit, AnEightBitCacheHoldsAlmostTwiceTheTokens) {
  const EngineOptions options{.kv_cache = KvCacheType::kFp8};
  const auto narrow = plan_engine(options, large(), 13 * kGiB, 15 * kGiB, MemoryOf::kDevice);
  const auto wide = plan_engine({}, large(), 13 * kGiB, 15 * kGiB, MemoryOf::kDevice);
  ASSERT_TRUE(narrow.has_value() && wide.has_value());
  EXPECT_EQ(narrow->model.kv_dtype, DType::kE4M3);
  EXPECT_EQ(page_bytes(large(), narrow->model, CacheGroup::kFull), 64 * 24576 * 65 / 128);
  EXPECT_EQ(cache_elem_bytes(large(), DType::kE4M3), 65.0 / 64.0);
  EXPECT_NEAR(narrow->model.max_position, wide->model.max_position * 128.0 / 65.0,
              0.05 * wide->model.max_position);
}

TEST(MemoryFit, RefusesOptionsOutOfRange) {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  const EngineOptions bad[] = {
      {.max_model_len = -1},  {.max_model_len = 131073}, {.max_num_seqs = 0},
      {.max_num_seqs = kMax}, {.max_batch_tokens = -1},  {.max_batch_tokens = kMax},
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
