#include "api/commands/bench.h"

#include <gtest/gtest.h>

#include <cmath>

#include "api/commands/bench_steps.h"
#include "api/commands/presets.h"
#include "model/tensor_list.h"

namespace nibble::commands {
namespace {

TEST(Bench, MeanAndSampleDeviation) {
  EXPECT_EQ(mean_of({}), 0.0);
  EXPECT_EQ(deviation_of({3.0}), 0.0);
  const std::vector<double> values = {2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0};
  EXPECT_EQ(mean_of(values), 5.0);
  EXPECT_DOUBLE_EQ(deviation_of(values), std::sqrt(32.0 / 7.0));
}

// 0.5 s and 1 s for 2 streams of 100 tokens.
BenchRow two_samples() {
  BenchRow row;
  row.test = {.n_gen = 100, .streams = 2, .n_threads = 4};
  row.samples_ns = {500'000'000, 1'000'000'000};
  row.bytes_per_token = 2e6;
  row.flops_per_token = 4e6;
  return row;
}

TEST(Bench, SpeedsCountTheTokensOfAllStreams) {
  BenchRow row = two_samples();
  EXPECT_EQ(row.samples_ts(), (std::vector<double>{400.0, 200.0}));
  EXPECT_EQ(row.avg_ts(), 300.0);
  EXPECT_DOUBLE_EQ(row.stddev_ts(), std::sqrt(2.0) * 100.0);
  EXPECT_DOUBLE_EQ(row.gb_s(), 0.6);
  EXPECT_DOUBLE_EQ(row.tflop_s(), 0.0012);
  EXPECT_EQ(row.bandwidth_fraction(), 0.0);  // unknown
  row.rates = {.read = 1.2e9, .peak = 2.4e9};
  EXPECT_DOUBLE_EQ(row.bandwidth_fraction(), 0.5);
  EXPECT_DOUBLE_EQ(row.peak_fraction(), 0.5);
}

TEST(Bench, NamesOfTestsAreThoseOfLlamaBench) {
  EXPECT_EQ(test_name({.n_prompt = 512}), "pp512");
  EXPECT_EQ(test_name({.n_gen = 128}), "tg128");
  EXPECT_EQ(test_name({.n_prompt = 512, .n_gen = 128, .n_depth = 64}), "pp512+tg128 @ d64");
}

TEST(Bench, ListsMakeEveryTestOnceAndCountsOfZeroNone) {
  BenchOptions options;
  options.n_prompt = {0, 16};
  options.n_gen = {4};
  options.prompt_gen = {{8, 2}};
  options.n_depth = {0, 64};
  options.n_threads = {1, 2};
  const std::vector<BenchTest> tests = bench_tests(options);
  ASSERT_EQ(tests.size(), 2U * 2U * 3U);
  EXPECT_EQ(tests[0].n_prompt, 16);
  EXPECT_EQ(tests[1].n_gen, 4);
  EXPECT_EQ(test_name(tests[2]), "pp8+tg2");
  EXPECT_EQ(tests[3].n_depth, 64);
  EXPECT_EQ(tests[5].n_threads, 1);
  EXPECT_EQ(tests[6].n_threads, 2);
}

std::vector<std::int32_t> rows_of(const std::vector<BenchStep>& steps) {
  std::vector<std::int32_t> rows;
  for (const BenchStep& step : steps) {
    rows.push_back(0);
    for (const StepSlice& slice : step) {
      rows.back() += slice.rows;
    }
  }
  return rows;
}

TEST(Bench, StepsEndWhereTheBatchOrTheUbatchIsFull) {
  const BenchTest test{
      .n_prompt = 25, .n_gen = 1, .n_depth = 3, .streams = 1, .n_batch = 10, .n_ubatch = 8};
  EXPECT_EQ(rows_of(timed_steps(test)), (std::vector<std::int32_t>{8, 2, 8, 2, 5, 1}));
  EXPECT_EQ(rows_of(depth_steps(test)), (std::vector<std::int32_t>{3}));
}

TEST(Bench, EveryStreamComputesEveryPositionOnce) {
  const BenchTest test{
      .n_prompt = 5, .n_gen = 2, .n_depth = 3, .streams = 3, .n_batch = 100, .n_ubatch = 4};
  std::vector<std::int32_t> next(3, 0);
  int num_logits = 0;
  for (const auto& steps : {depth_steps(test), timed_steps(test)}) {
    for (const BenchStep& step : steps) {
      for (const StepSlice& slice : step) {
        std::int32_t& position = next[static_cast<std::size_t>(slice.stream)];
        EXPECT_EQ(slice.position, position);
        position += slice.rows;
        num_logits += slice.wants_logits ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(next, (std::vector<std::int32_t>{10, 10, 10}));
  EXPECT_EQ(num_logits, 3 * 3);  // the end of each prompt and each generated token
}

// Computes the test twice on slots that remember whose key they hold.
void expect_window_survives(const BenchTest& test) {
  constexpr std::int32_t kWindow = 128;
  const BenchPages pages = pages_for(test, kWindow);
  const std::int32_t ring = pages.per_stream[1];
  EXPECT_LT(ring, pages.per_stream[0]);
  model::BatchPlan plan;
  std::vector<std::int64_t> holder(static_cast<std::size_t>(test.streams * ring * 64), -1);
  for (const auto& steps : {depth_steps(test), timed_steps(test), timed_steps(test)}) {
    for (const BenchStep& step : steps) {
      fill_plan(step, pages, {1, 2, 3}, plan);
      for (const model::SequencePlan& sequence : plan.sequences) {
        const model::PageTable& table = sequence.tables[1];
        const auto slot = [&](std::int32_t position) {
          const auto page = static_cast<std::size_t>(position / 64 - table.first_page);
          return static_cast<std::size_t>(std::int64_t{table.pages.at(page)} * 64 + position % 64);
        };
        const std::int32_t end = sequence.first_position + sequence.num_rows;
        const std::int32_t first = std::max(0, sequence.first_position - kWindow + 1);
        ASSERT_LE(table.first_page, first / 64) << sequence.first_position;
        for (std::int32_t at = sequence.first_position; at < end; ++at) {
          holder[slot(at)] = at;
        }
        for (std::int32_t at = first; at < end; ++at) {
          ASSERT_EQ(holder[slot(at)], at) << sequence.first_position;
        }
      }
    }
  }
}

TEST(Bench, WindowRingKeepsWhatARepetitionStartsFrom) {
  expect_window_survives(
      {.n_prompt = 270, .n_gen = 50, .n_depth = 5000, .streams = 2, .n_ubatch = 64});
  // Steps whose keys begin in the middle of a page.
  expect_window_survives({.n_gen = 2, .n_depth = 5000, .n_ubatch = 500});
}

TEST(Bench, ExpectedExpertsFollowTheFormula) {
  EXPECT_DOUBLE_EQ(expected_experts(32, 4, 1), 4.0);
  EXPECT_DOUBLE_EQ(expected_experts(32, 4, 2), 32.0 * (1.0 - std::pow(28.0 / 32.0, 2)));
  EXPECT_NEAR(expected_experts(32, 4, 512), 32.0, 1e-6);
  EXPECT_EQ(expected_experts(4, 4, 1), 4.0);
}

TEST(Bench, OneTokenAtDepthReadsTheWeightsAndTheCache) {
  const Preset preset = *find_preset("gpt-oss-20b");  // 12 of 24 layers with a window of 128
  const TokenCost token = token_cost(preset.config, model::ExpertFormat::kMxfp4);
  const BenchTest test{.n_gen = 1, .n_depth = 999, .streams = 1};
  const BenchCost cost = cost_of(timed_steps(test), preset.config, token, 2);
  const double kv = 12.0 * (1000 + 128) * 2 * 8 * 64 * 2;
  EXPECT_DOUBLE_EQ(cost.bytes, static_cast<double>(token.bytes()) + kv);
  const double attention = 12.0 * (1000 + 128) * 4 * 64 * 64;
  EXPECT_DOUBLE_EQ(cost.flops, static_cast<double>(token.flops) + attention);
  const BenchCost wide = cost_of(timed_steps(test), preset.config, token, 4);
  EXPECT_DOUBLE_EQ(wide.bytes - cost.bytes, kv);
}

TEST(Bench, StreamsShareDenseWeightsAndSomeExperts) {
  const Preset preset = *find_preset("gpt-oss-20b");
  const TokenCost token = token_cost(preset.config, model::ExpertFormat::kMxfp4);
  const BenchCost cost = cost_of(timed_steps({.n_gen = 1, .streams = 8}), preset.config, token, 2);
  const double experts = 32.0 * (1.0 - std::pow(28.0 / 32.0, 8)) / 4.0;
  const double kv = 8.0 * 24 * 2 * 8 * 64 * 2;  // the token itself
  EXPECT_NEAR(cost.bytes,
              experts * static_cast<double>(token.expert_bytes) +
                  static_cast<double>(token.attention_bytes + token.head_bytes) + kv,
              1.0);
}

// Rows 0..3 of a prompt in one step see 1 + 2 + 3 + 4 keys; the head runs for the last one only.
TEST(Bench, PromptCountsItsTriangleAndOneRowOfTheHead) {
  const Preset preset = *find_preset("gpt-oss-20b");
  const TokenCost token = token_cost(preset.config, model::ExpertFormat::kMxfp4);
  const BenchCost cost = cost_of(timed_steps({.n_prompt = 4}), preset.config, token, 2);
  const double head = static_cast<double>(token.head_bytes);
  const double attention = 24.0 * 10 * 4 * 64 * 64;
  EXPECT_DOUBLE_EQ(cost.flops, 4.0 * (static_cast<double>(token.flops) - head) + head + attention);
}

BenchBaseline baseline(double avg, double deviation) {
  const BenchRow row = two_samples();
  return {.model = "demo",
          .test = row.test,
          .backend = row.backend(),
          .activation = row.activation,
          .kv_cache = row.kv_cache,
          .is_full = row.is_full,
          .avg_ts = avg,
          .stddev_ts = deviation};
}

TEST(Bench, SlowerMeansBeyondTwiceTheDeviationOfTheDifference) {
  BenchRow row = two_samples();  // 300 +- 141.4
  const BenchComparison noisy = compare(row, "demo", {baseline(500.0, 30.0)});
  EXPECT_TRUE(noisy.has_baseline);
  EXPECT_DOUBLE_EQ(noisy.noise_ts, 2.0 * std::sqrt(20000.0 + 900.0));
  EXPECT_FALSE(noisy.is_slower);
  EXPECT_TRUE(compare(row, "demo", {baseline(600.0, 30.0)}).is_slower);
  EXPECT_TRUE(compare(row, "demo", {baseline(10.0, 1.0)}).is_faster);
}

TEST(Bench, TwoPercentIsNoiseEvenWithoutDeviation) {
  BenchRow row = two_samples();
  row.samples_ns = {1'000'000'000};  // 200 tok/s
  EXPECT_FALSE(compare(row, "demo", {baseline(204.0, 0.0)}).is_slower);
  EXPECT_TRUE(compare(row, "demo", {baseline(205.0, 0.0)}).is_slower);
  EXPECT_DOUBLE_EQ(compare(row, "demo", {baseline(205.0, 0.0)}).noise_ts, 4.1);
}

TEST(Bench, ComparesOnlyWithTheSameTest) {
  const BenchRow row = two_samples();
  EXPECT_FALSE(compare(row, "other", {baseline(500.0, 0.0)}).has_baseline);
  for (std::int32_t BenchTest::*field :
       {&BenchTest::n_prompt, &BenchTest::n_gen, &BenchTest::n_depth, &BenchTest::streams,
        &BenchTest::n_threads}) {
    BenchBaseline other = baseline(500.0, 0.0);
    other.test.*field += 1;
    EXPECT_FALSE(compare(row, "demo", {other}).has_baseline);
  }
  BenchBaseline other_batch = baseline(500.0, 0.0);
  other_batch.test.n_ubatch = 64;
  EXPECT_EQ(compare(row, "demo", {other_batch}).baseline_ts, 500.0);
  EXPECT_EQ(compare(row, "demo", {other_batch, baseline(300.0, 0.0)}).baseline_ts, 300.0);
}

// An exact run is not faster or slower than one in int8, nor is one through the engine.
TEST(Bench, ComparesOnlyWithTheSameArithmeticBackendAndPath) {
  BenchRow row = two_samples();
  row.activation = "int8";
  EXPECT_FALSE(compare(row, "demo", {baseline(500.0, 0.0)}).has_baseline);
  BenchBaseline int8 = baseline(300.0, 0.0);
  int8.activation = "int8";
  EXPECT_EQ(compare(row, "demo", {baseline(500.0, 0.0), int8}).baseline_ts, 300.0);
  row = two_samples();
  row.device = "cuda: asked for";
  EXPECT_FALSE(compare(row, "demo", {baseline(500.0, 0.0)}).has_baseline);
  row = two_samples();
  row.is_full = true;
  EXPECT_FALSE(compare(row, "demo", {baseline(500.0, 0.0)}).has_baseline);
}

const std::string kTiny = std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/tiny";

TEST(Bench, RefusesWhatCannotBeMeasured) {
  const auto ignore = [](const BenchRow&) { return true; };
  BenchOptions options{.model = kTiny, .n_prompt = {0}, .n_gen = {0}};
  EXPECT_EQ(bench(options, ignore).code(), Code::kInvalidArgument);
  options.n_gen = {1 << 24};
  EXPECT_EQ(bench(options, ignore).code(), Code::kInvalidArgument);
  options = {.model = kTiny, .n_depth = {4}, .is_full = true};
  EXPECT_EQ(bench(options, ignore).code(), Code::kInvalidArgument);
  EXPECT_EQ(bench({.model = "/nonexistent"}, ignore).code(), Code::kNotFound);
}

TEST(Bench, RunsEachTestAsOftenAsAskedAndStopsWhenTold) {
  BenchOptions options{.model = kTiny, .n_prompt = {5}, .n_gen = {3}, .n_depth = {150}};
  options.streams = {1, 3};
  options.n_ubatch = {4};
  options.n_threads = {1};
  options.repetitions = 2;
  std::vector<BenchRow> rows;
  const Status status = bench(options, [&](const BenchRow& row) {
    rows.push_back(row);
    return rows.size() < 3;
  });
  EXPECT_EQ(status.code(), Code::kCancelled);
  ASSERT_EQ(rows.size(), 3U);
  for (const BenchRow& row : rows) {
    EXPECT_EQ(row.samples_ns.size(), 2U);
    EXPECT_EQ(row.test.n_threads, 1);
    EXPECT_GT(row.rates.read, 0.0);
    EXPECT_GT(row.bytes_per_token, 0.0);
  }
  EXPECT_EQ(rows[2].test.streams, 3);
}

TEST(Bench, FullGoesThroughTheEngine) {
  BenchOptions options{.model = kTiny, .n_prompt = {5}, .n_gen = {3}};
  options.prompt_gen = {{4, 2}};
  options.streams = {2};
  options.repetitions = 1;
  options.n_threads = {1};
  options.is_full = true;
  int num_rows = 0;
  const Status status = bench(options, [&](const BenchRow& row) {
    EXPECT_TRUE(row.is_full);
    ++num_rows;
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(num_rows, 3);
}

}  // namespace
}  // namespace nibble::commands
