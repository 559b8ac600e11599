// Long and short requests beside each other.
#include <gtest/gtest.h>

#include "scheduler_simulation.h"

namespace nibble::engine {
namespace {

SchedulerLimits roomy_limits(std::int32_t max_num_seqs) {
  SchedulerLimits limits{.max_num_seqs = max_num_seqs,
                         .max_batch_tokens = 16,
                         .max_logit_rows = max_num_seqs,
                         .page_size = 4,
                         .window = 8,
                         .num_pages = {1000, 0},
                         .shares_prefixes = true};
  limits.num_pages[1] = window_pages(limits);
  return limits;
}

// Steps until the load has ended; fails after `most`.
int steps_of(Simulation& simulation, const Load* load, int most) {
  int steps = 0;
  for (; simulation.is_alive(load) && steps <= most; ++steps) {
    simulation.step();
  }
  return steps;
}

std::vector<std::int32_t> distinct_prompt(std::int32_t count, std::int32_t first) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(count), first);
}

TEST(Fairness, AShortPromptDoesNotWaitForALongOne) {
  for (const bool wants_prompt_logits : {false, true}) {
    Simulation simulation(roomy_limits(4), 1);
    const Load* slow = simulation.add(distinct_prompt(1600, 7), 1610, wants_prompt_logits);
    simulation.step();
    const Load* quick = simulation.add(distinct_prompt(8, 8), 9, false);
    EXPECT_EQ(steps_of(simulation, quick, 10), 1) << "half of the 16 rows are for short ones";
    EXPECT_TRUE(simulation.is_alive(slow));
  }
}

// Arrivals that never end and use every row they can get.
TEST(Fairness, ALongPromptMovesOnByHalfAStepAmongEndlessShortOnes) {
  for (const bool wants_prompt_logits : {false, true}) {
    Simulation simulation(roomy_limits(64), 1);
    const Load* slow = simulation.add(distinct_prompt(400, 7), 401, wants_prompt_logits);
    std::int32_t next = 8;
    int steps = 0;
    for (; simulation.is_alive(slow) && steps < 200; ++steps) {
      while (simulation.num_alive() < 20) {
        simulation.add(distinct_prompt(16, ++next), 17, false);
      }
      simulation.step();
      ASSERT_FALSE(testing::Test::HasFailure());
    }
    EXPECT_LE(steps, 400 / 8 + 1);
  }
}

// Equal prompts are better served one after the other than all at half speed.
TEST(Fairness, EqualPromptsFinishInOrderOfArrival) {
  Simulation simulation(roomy_limits(4), 1);
  const Load* first = simulation.add(distinct_prompt(64, 7), 65, false);
  const Load* second = simulation.add(distinct_prompt(64, 8), 65, false);
  EXPECT_EQ(steps_of(simulation, first, 20), 4);
  EXPECT_EQ(steps_of(simulation, second, 20), 4);
}

// The head of the queue lacks pages: small ones pass it, but not for ever.
TEST(Fairness, ARequestThatLacksPagesIsOvertakenABoundedNumberOfTimes) {
  SchedulerLimits limits = roomy_limits(8);
  limits.num_pages[0] = 40;
  Simulation simulation(limits, 1);
  const Load* first = simulation.add(distinct_prompt(60, 7), 100, false);  // 25 pages in the end
  simulation.step();
  const Load* large = simulation.add(distinct_prompt(120, 8), 121, false);  // wants 30 at once
  std::int32_t next = 10;
  int steps = 0;
  std::set<SequenceId> passed;
  for (; large->sequence.num_computed == 0 && steps < 500; ++steps) {
    while (simulation.num_alive() < 6) {
      simulation.add(distinct_prompt(8, ++next), 12, false);
    }
    simulation.step();
    ASSERT_FALSE(testing::Test::HasFailure());
    for (const auto& load : simulation.loads()) {
      if (load->sequence.id > large->sequence.id && load->sequence.was_admitted &&
          !large->sequence.was_admitted) {
        passed.insert(load->sequence.id);
      }
    }
  }
  EXPECT_LT(steps, 500);
  EXPECT_FALSE(simulation.is_alive(first)) << "it waited for the pages of the first one";
  EXPECT_EQ(passed.size(), static_cast<std::size_t>(kMostOvertakes));
}

// Choices of one request: the first computes the prompt, the others wait for its pages.
TEST(Fairness, EqualPromptsAreComputedOnce) {
  Simulation simulation(roomy_limits(8), 1);
  std::vector<Load*> choices;
  for (int i = 0; i < 4; ++i) {
    choices.push_back(simulation.add(distinct_prompt(102, 7), 110, false));
  }
  const Load* other = simulation.add(distinct_prompt(9, 9), 10, false);
  for (int step = 0; step < 7; ++step) {
    simulation.step();
    EXPECT_EQ(simulation.scheduler().num_waiting(), 3) << step;
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_FALSE(simulation.is_alive(other)) << "what shares nothing does not wait";
  simulation.step();
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(choices[static_cast<std::size_t>(i)]->sequence.num_cached, 100);
  }
}

TEST(Fairness, NobodyWaitsForPagesThatAreThere) {
  Simulation simulation(roomy_limits(8), 1);
  std::vector<std::int32_t> prompt = distinct_prompt(102, 7);
  const Load* first = simulation.add(prompt, 110, false);
  simulation.step();
  std::fill(prompt.begin() + 16, prompt.end(), 8);
  const Load* second = simulation.add(prompt, 110, false);
  simulation.step();
  EXPECT_TRUE(simulation.is_alive(first));
  EXPECT_EQ(second->sequence.num_cached, 16);
  EXPECT_EQ(simulation.scheduler().num_running(), 2);
}

// The one that is waited for goes away half-way: the next takes its place and its pages.
TEST(Fairness, WhoWaitsForAPrefixGoesOnWhenItsOwnerIsCancelled) {
  Simulation simulation(roomy_limits(8), 1);
  simulation.add(distinct_prompt(102, 7), 110, false);
  simulation.step();
  const Load* second = simulation.add(distinct_prompt(102, 7), 103, false);
  simulation.step();
  EXPECT_EQ(simulation.scheduler().num_waiting(), 1);
  while (simulation.num_alive() > 1) {
    simulation.remove_first();
  }
  EXPECT_EQ(steps_of(simulation, second, 20), 5) << "32 rows were computed, 70 are left";
  EXPECT_EQ(simulation.scheduler().counters().hit_tokens, 32);
}

}  // namespace
}  // namespace nibble::engine
