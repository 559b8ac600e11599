#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "model/model.h"
#include "support/engine_under_test.h"
#include "support/step_witness.h"

namespace nibble::engine {
namespace {

using model::BatchPlan;
using model::load_model;
using model::Model;
using model::PageTable;
using model::SequencePlan;
using testing_support::arm_thread;
using testing_support::can_watch_system_calls;
using testing_support::disarm_thread;
using testing_support::kNoSystemCall;
using testing_support::step_counts;
using testing_support::StepCounts;

constexpr std::int32_t kPageSize = 64;
constexpr std::int32_t kPages = 4;
constexpr std::int32_t kPrompt = 130;  // past the window

std::unique_ptr<Model> load(DType activation, int num_threads) {
  auto model = load_model(NIBBLE_SOURCE_DIR "/models/demo", {.activation = activation,
                                                             .kv_dtype = activation,
                                                             .num_threads = num_threads,
                                                             .max_batch_tokens = kPrompt,
                                                             .max_logit_rows = 1,
                                                             .max_position = kPages * kPageSize,
                                                             .page_size = kPageSize,
                                                             .num_pages = {kPages, kPages}});
  EXPECT_TRUE(model.has_value()) << (model ? "" : model.error().message());
  return model ? *std::move(model) : nullptr;
}

BatchPlan plan_of(std::int32_t first_position, std::int32_t num_rows) {
  BatchPlan plan{.page_size = kPageSize};
  plan.token_ids.assign(num_rows, 7);
  SequencePlan sequence{.num_rows = num_rows, .first_position = first_position};
  for (PageTable& table : sequence.tables) {
    table.pages.resize(kPages);
    std::iota(table.pages.begin(), table.pages.end(), 0);
  }
  plan.sequences.push_back(std::move(sequence));
  plan.logit_rows = {num_rows - 1};
  return plan;
}

struct Witnessed {
  StepCounts counts;
  std::int64_t first_call = kNoSystemCall;  // of this thread
};

// The fifth decode step after a prompt: what is set up once is set up.
Witnessed witness_step(Model& model) {
  std::vector<float> logits(model.config().vocab);
  EXPECT_TRUE(model.forward(plan_of(0, kPrompt), logits).ok());
  std::vector<BatchPlan> steps;
  steps.reserve(5);
  for (std::int32_t step = 0; step < 5; ++step) {
    steps.push_back(plan_of(kPrompt + step, 1));
  }
  for (std::size_t step = 0; step < 4; ++step) {
    EXPECT_TRUE(model.forward(steps[step], logits).ok());
  }
  const bool watches = can_watch_system_calls();
  Witnessed out;
  const StepCounts before = step_counts();
  if (watches) {
    arm_thread();
  }
  const Status status = model.forward(steps[4], logits);
  if (watches) {
    out.first_call = disarm_thread();
  }
  const StepCounts after = step_counts();
  EXPECT_TRUE(status.ok()) << status.message();
  out.counts = {after.allocations - before.allocations, after.locks - before.locks};
  return out;
}

TEST(QuietStep, TheWitnessSeesWhatItIsFor) {
  const StepCounts before = step_counts();
  std::mutex mutex;
  mutex.lock();
  mutex.unlock();
  std::vector<int> values(100);
  EXPECT_GT(step_counts().locks, before.locks);
  EXPECT_GT(step_counts().allocations, before.allocations);
  if (!can_watch_system_calls()) {
    GTEST_SKIP() << "the kernel does not report system calls to their process";
  }
  arm_thread();
  const pid_t group = ::getpgid(0);
  EXPECT_EQ(disarm_thread(), SYS_getpgid);
  EXPECT_EQ(group, ::getpgrp());
  arm_thread();
  EXPECT_EQ(disarm_thread(), kNoSystemCall);
}

TEST(QuietStep, ADecodeStepNeitherAllocatesNorLocks) {
  for (const DType activation : {DType::kBF16, DType::kF32}) {
    for (const int num_threads : {1, 2}) {
      const auto model = load(activation, num_threads);
      ASSERT_NE(model, nullptr);
      const Witnessed seen = witness_step(*model);
      EXPECT_EQ(seen.counts.allocations, 0) << num_threads << " threads";
      EXPECT_EQ(seen.counts.locks, 0) << num_threads << " threads";
    }
  }
}

// With more threads one may have to wake or await another, which this test cannot time.
TEST(QuietStep, ADecodeStepOfOneThreadMakesNoSystemCall) {
  if (!can_watch_system_calls()) {
    GTEST_SKIP() << "the kernel does not report system calls to their process";
  }
  for (const DType activation : {DType::kBF16, DType::kF32}) {
    const auto model = load(activation, 1);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(witness_step(*model).first_call, kNoSystemCall);
  }
}

// Memory for the plan is kept from step to step. Sequences grow by a page every 64 tokens, and
// their ids by doubling: neither is in these steps.
TEST(QuietStep, AnEngineStepThatOpensNoPageAllocatesNothing) {
  const auto engine = testing_support::make_engine(NIBBLE_SOURCE_DIR "/models/demo",
                                                   {.activation = DType::kBF16, .max_num_seqs = 3});
  ASSERT_NE(engine, nullptr);
  for (const float temperature : {0.0F, 0.7F, 1.0F}) {
    TokenRequest request{.prompt = {1, 2, 3, 4, 5, 6}, .max_tokens = 60};
    request.sampling.temperature = temperature;
    ASSERT_TRUE(engine->add(std::move(request)).has_value());
  }
  std::vector<TokenEvent> events;
  events.reserve(1000);
  for (int step = 0; step < 10; ++step) {
    engine->step(events);
  }
  const std::int64_t before = step_counts().allocations;
  for (int step = 0; step < 8; ++step) {
    engine->step(events);
  }
  EXPECT_EQ(step_counts().allocations, before);
  EXPECT_EQ(events.size(), 3U * 18U);
}

}  // namespace
}  // namespace nibble::engine
