#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include "scheduler_simulation.h"

namespace nibble::engine {
namespace {

using model::BatchPlan;

SchedulerLimits random_limits(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto between = [&](std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(random);
  };
  SchedulerLimits limits{.max_num_seqs = between(1, 6),
                         .max_batch_tokens = between(1, 24),
                         .max_logit_rows = 0,
                         .page_size = between(1, 9),
                         .window = between(1, 12),
                         .shares_prefixes = between(0, 4) > 0};
  limits.max_logit_rows = limits.max_num_seqs + between(0, 6);
  // 60 tokens fit, a few sequences of that length do not.
  limits.num_pages[0] = 60 / limits.page_size + 1 + between(0, 8);
  limits.num_pages[1] = window_pages(limits) + between(0, 12);
  return limits;
}

TEST(Scheduler, KeepsItsPromisesUnderRandomArrivals) {
  SchedulerCounters sum;
  std::int64_t evicted[model::kNumCacheGroups] = {0, 0};
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(random_limits(seed), seed);
    std::int32_t to_come = 25;
    for (int step = 0; step < 5000 && (to_come > 0 || simulation.has_work()); ++step) {
      if (to_come > 0 && simulation.below(3) == 0) {
        const std::int32_t target = 2 + simulation.below(58);
        simulation.add(1 + simulation.below(target - 1), target, simulation.below(3) == 0);
        --to_come;
      }
      if (simulation.below(40) == 0) {
        simulation.remove_any(simulation.below(3) == 0);
        simulation.check_pages();
      }
      if (simulation.has_work()) {
        simulation.step();
      }
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_EQ(simulation.num_alive(), 0U) << "not finished after 5,000 steps";
    simulation.check_nothing_is_used();
    const SchedulerCounters& counters = simulation.scheduler().counters();
    sum.num_preemptions += counters.num_preemptions;
    sum.hit_tokens += counters.hit_tokens;
    for (int group = 0; group < model::kNumCacheGroups; ++group) {
      evicted[group] +=
          simulation.scheduler().cache().num_evicted(static_cast<model::CacheGroup>(group));
    }
  }
  EXPECT_GT(sum.num_preemptions, 100);
  EXPECT_GT(sum.hit_tokens, 1000);
  EXPECT_GT(evicted[0], 1000);
  EXPECT_GT(evicted[1], 1000);
}

// A stream of short requests that never ends must not hold up a long one.
TEST(Scheduler, LongRequestFinishesAmongEndlessShortOnes) {
  for (const bool wants_prompt_logits : {false, true}) {
    SchedulerLimits limits{.max_num_seqs = 4,
                           .max_batch_tokens = 16,
                           .max_logit_rows = 4,
                           .page_size = 4,
                           .window = 8,
                           .num_pages = {12, 0}};
    limits.num_pages[1] = window_pages(limits);
    Simulation simulation(limits, 1);
    const Load* load = simulation.add(36, 46, wants_prompt_logits);
    int steps = 0;
    for (; simulation.is_alive(load) && steps < 500; ++steps) {
      while (simulation.num_alive() < 12) {
        simulation.add(6, 14, false);
      }
      simulation.step();
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_LT(steps, 500);
  }
}

// The window group never runs short: what preempts is a lack of pages for whole sequences.
TEST(Scheduler, WindowPagesAlwaysSuffice) {
  for (std::uint32_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SchedulerLimits limits = random_limits(seed);
    limits.num_pages[0] = limits.max_num_seqs * (60 / limits.page_size + 1);
    limits.num_pages[1] = window_pages(limits);
    limits.shares_prefixes = seed % 2 == 0;  // needs fewer
    Simulation simulation(limits, seed);
    for (int i = 0; i < 20; ++i) {
      const std::int32_t target = 2 + simulation.below(58);
      simulation.add(1 + simulation.below(target - 1), target, i % 3 == 0);
    }
    while (simulation.has_work()) {
      simulation.step();
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_EQ(simulation.scheduler().num_preemptions(), 0);
  }
}

// In step, one token each: at position 32 every window of 18 begins on the last token of a page.
TEST(Scheduler, WindowPagesSufficeWhenEveryWindowTouchesOnePageMore) {
  SchedulerLimits limits{.max_num_seqs = 8,
                         .max_batch_tokens = 8,
                         .max_logit_rows = 8,
                         .page_size = 16,
                         .window = 18,
                         .num_pages = {8 * 3, 0}};
  limits.num_pages[1] = window_pages(limits);
  Simulation simulation(limits, 1);
  for (std::int32_t i = 0; i < limits.max_num_seqs; ++i) {
    simulation.add(1, 40, false);
  }
  int steps = 0;
  for (; simulation.has_work() && steps < 100; ++steps) {
    simulation.step();
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(steps, 39) << "not in step";
  EXPECT_EQ(simulation.scheduler().num_preemptions(), 0);
}

TEST(Scheduler, PreemptsTheYoungestWhichStartsOver) {
  SchedulerLimits limits{.max_num_seqs = 2,
                         .max_batch_tokens = 32,
                         .max_logit_rows = 2,
                         .page_size = 4,
                         .window = 8,
                         .num_pages = {4, 20}};
  Scheduler scheduler(limits);
  Sequence old{.id = 1};
  Sequence young{.id = 2};
  old.request.prompt = old.ids = {1, 1, 1, 1, 1, 1, 1, 1};
  young.request.prompt = young.ids = {1, 1, 1, 1, 1};
  scheduler.add(&old);
  scheduler.add(&young);
  scheduler.schedule();
  ASSERT_EQ(scheduler.scheduled().size(), 2U);
  scheduler.commit();
  old.ids.push_back(2);  // the ninth token wants a third page, all four are taken
  young.ids.push_back(2);
  const BatchPlan& plan = scheduler.schedule();
  EXPECT_EQ(scheduler.num_preemptions(), 1);
  ASSERT_EQ(scheduler.scheduled().size(), 1U);
  EXPECT_EQ(scheduler.scheduled()[0], &old);
  EXPECT_EQ(plan.num_tokens(), 1);
  EXPECT_EQ(young.num_computed, 0);
  EXPECT_TRUE(young.tables[0].pages.empty());
  scheduler.commit();
  scheduler.remove(&old);
  EXPECT_EQ(scheduler.schedule().num_tokens(), 6) << "prompt and what was generated, in one go";
  scheduler.remove(&young);
}

TEST(Scheduler, FitsCountsBothGroups) {
  SchedulerLimits limits{.max_num_seqs = 1,
                         .max_batch_tokens = 8,
                         .max_logit_rows = 1,
                         .page_size = 16,
                         .window = 32,
                         .num_pages = {8, 4}};
  EXPECT_TRUE(Scheduler(limits).fits(128));
  EXPECT_FALSE(Scheduler(limits).fits(129));
  limits.num_pages[1] = 3;
  EXPECT_TRUE(Scheduler(limits).fits(48));
  EXPECT_FALSE(Scheduler(limits).fits(49));
}

}  // namespace
}  // namespace nibble::engine
