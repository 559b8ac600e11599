#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>

namespace nibble::engine {
namespace {

using model::BatchPlan;
using model::CacheGroup;
using model::PageTable;
using model::SequencePlan;

constexpr int kGroups = model::kNumCacheGroups;

// A sequence with its own end: it is removed when it has `target` ids.
struct Load {
  Sequence sequence;
  std::int32_t target = 0;
  std::int32_t scored = 0;
};

// What a model would have in its cache: who wrote each slot, and for which position.
class CacheModel {
 public:
  CacheModel(const SchedulerLimits& limits) : limits_(limits) {}

  // Writes the rows of the plan, then reads every key that each row attends to.
  void run(const BatchPlan& plan, std::span<Sequence* const> sequences) {
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
      each_row(plan.sequences[i], [&](int group, std::int32_t position) {
        slot(plan.sequences[i].tables[group], group, position) = {sequences[i]->id, position};
      });
    }
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
      each_row(plan.sequences[i], [&](int group, std::int32_t position) {
        const bool is_window = group == static_cast<int>(CacheGroup::kWindow);
        const std::int32_t first = is_window ? std::max(0, position - limits_.window + 1) : 0;
        for (std::int32_t key = first; key <= position; ++key) {
          const auto owner = slot(plan.sequences[i].tables[group], group, key);
          ASSERT_EQ(owner, std::pair(sequences[i]->id, key))
              << "group " << group << ", row at " << position;
        }
      });
    }
  }

 private:
  using Owner = std::pair<SequenceId, std::int32_t>;

  template <typename Visit>
  void each_row(const SequencePlan& plan, const Visit& visit) {
    for (int group = 0; group < kGroups; ++group) {
      for (std::int32_t row = 0; row < plan.num_rows; ++row) {
        visit(group, plan.first_position + row);
      }
    }
  }

  Owner& slot(const PageTable& table, int group, std::int32_t position) {
    const std::int32_t page = position / limits_.page_size - table.first_page;
    EXPECT_TRUE(page >= 0 && page < static_cast<std::int32_t>(table.pages.size()))
        << "position " << position << " is in none of the pages from " << table.first_page;
    const std::int32_t physical = table.pages.at(static_cast<std::size_t>(page));
    return slots_[group][physical * limits_.page_size + position % limits_.page_size];
  }

  SchedulerLimits limits_;
  std::map<std::int32_t, Owner> slots_[kGroups];
};

// Adds, steps, cancels; checks every promise of the scheduler at every step.
class Simulation {
 public:
  Simulation(const SchedulerLimits& limits, std::uint32_t seed)
      : limits_(limits), scheduler_(limits), cache_(limits), random_(seed) {}

  std::int32_t below(std::int32_t limit) {
    return std::uniform_int_distribution<std::int32_t>(0, limit - 1)(random_);
  }

  Load* add(std::int32_t num_prompt, std::int32_t target, bool wants_prompt_logits) {
    auto load = std::make_unique<Load>();
    load->sequence.id = ++last_id_;
    load->sequence.request.prompt.assign(static_cast<std::size_t>(num_prompt), 1);
    load->sequence.ids = load->sequence.request.prompt;
    if (wants_prompt_logits) {
      load->sequence.request.on_prompt_logits = [](auto, auto) {};
    }
    load->target = target;
    EXPECT_TRUE(scheduler_.fits(target));
    scheduler_.add(&load->sequence);
    loads_.push_back(std::move(load));
    return loads_.back().get();
  }

  bool has_work() const { return scheduler_.has_work(); }
  std::size_t num_alive() const { return loads_.size(); }
  const Scheduler& scheduler() const { return scheduler_; }
  bool is_alive(const Load* load) const {
    return std::any_of(loads_.begin(), loads_.end(),
                       [&](const auto& other) { return other.get() == load; });
  }

  void remove_any() {
    if (!loads_.empty()) {
      remove(
          loads_[static_cast<std::size_t>(below(static_cast<std::int32_t>(loads_.size())))].get());
    }
  }

  void step() {
    const BatchPlan& plan = scheduler_.schedule();
    if (has_work()) {
      ASSERT_GT(plan.num_tokens(), 0) << "a step without rows while there is work";
    }
    check_budgets(plan);
    check_pages();
    cache_.run(plan, scheduler_.scheduled());
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    scheduler_.commit();
    finish_rows(plan);
  }

  void check_nothing_is_held() const {
    for (int group = 0; group < kGroups; ++group) {
      const PagePool& pool = scheduler_.pool(static_cast<CacheGroup>(group));
      EXPECT_EQ(pool.num_free(), pool.num_pages()) << "group " << group;
    }
  }

 private:
  void remove(Load* load) {
    scheduler_.remove(&load->sequence);
    std::erase_if(loads_, [&](const auto& other) { return other.get() == load; });
  }

  Load* load_of(const Sequence* sequence) {
    return std::find_if(loads_.begin(), loads_.end(),
                        [&](const auto& load) { return &load->sequence == sequence; })
        ->get();
  }

  void check_budgets(const BatchPlan& plan) {
    EXPECT_LE(plan.num_tokens(), limits_.max_batch_tokens);
    EXPECT_LE(plan.logit_rows.size(), static_cast<std::size_t>(limits_.max_logit_rows));
    EXPECT_LE(scheduler_.num_running(), limits_.max_num_seqs);
    EXPECT_TRUE(std::is_sorted(plan.logit_rows.begin(), plan.logit_rows.end()));
    std::int32_t rows = 0;
    for (const SequencePlan& sequence : plan.sequences) {
      EXPECT_EQ(sequence.first_row, rows);
      EXPECT_GT(sequence.num_rows, 0);
      rows += sequence.num_rows;
    }
    EXPECT_EQ(rows, plan.num_tokens());
    EXPECT_EQ(scheduler_.scheduled().size(), plan.sequences.size());
  }

  // Every page is free or in one table; nothing behind the window is kept by a scheduled sequence.
  void check_pages() {
    for (int group = 0; group < kGroups; ++group) {
      std::set<std::int32_t> held;
      std::size_t count = 0;
      for (const auto& load : loads_) {
        const PageTable& table = load->sequence.tables[group];
        held.insert(table.pages.begin(), table.pages.end());
        count += table.pages.size();
      }
      ASSERT_EQ(held.size(), count) << "a page in two tables";
      const PagePool& pool = scheduler_.pool(static_cast<CacheGroup>(group));
      ASSERT_EQ(static_cast<std::size_t>(pool.num_free()) + count,
                static_cast<std::size_t>(pool.num_pages()));
    }
    for (const Sequence* sequence : scheduler_.scheduled()) {
      const PageTable& table = sequence->tables[static_cast<int>(CacheGroup::kWindow)];
      EXPECT_GT((table.first_page + 1) * limits_.page_size,
                sequence->num_computed - limits_.window + 1)
          << "a page wholly behind the window";
    }
  }

  // Logit rows: each prompt position once, in order, for those who want them; one for each token.
  void finish_rows(const BatchPlan& plan) {
    std::size_t row = 0;
    const std::vector<Sequence*> sequences(scheduler_.scheduled().begin(),
                                           scheduler_.scheduled().end());
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const SequencePlan& entry = plan.sequences[i];
      Load* load = load_of(sequences[i]);
      for (;
           row < plan.logit_rows.size() && plan.logit_rows[row] < entry.first_row + entry.num_rows;
           ++row) {
        const std::int32_t position = entry.first_position + plan.logit_rows[row] - entry.first_row;
        const bool is_last = position + 1 == sequences[i]->num_ids();
        if (sequences[i]->wants_prompt_logits() && position < sequences[i]->num_prompt()) {
          EXPECT_EQ(position, load->scored++);
          sequences[i]->num_scored = load->scored;
        } else {
          EXPECT_TRUE(is_last) << "a row of logits that nobody wants, position " << position;
        }
      }
      const bool is_complete = sequences[i]->num_remaining() == 0;
      if (is_complete) {
        EXPECT_EQ(plan.logit_rows[row - 1], entry.first_row + entry.num_rows - 1);
        sequences[i]->ids.push_back(1);
        if (sequences[i]->num_ids() >= load->target) {
          EXPECT_TRUE(!sequences[i]->wants_prompt_logits() ||
                      load->scored == sequences[i]->num_prompt());
          remove(load);
        }
      }
    }
    EXPECT_EQ(row, plan.logit_rows.size());
  }

  SchedulerLimits limits_;
  Scheduler scheduler_;
  CacheModel cache_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Load>> loads_;
  SequenceId last_id_ = 0;
};

SchedulerLimits random_limits(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto between = [&](std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(random);
  };
  SchedulerLimits limits{.max_num_seqs = between(1, 6),
                         .max_batch_tokens = between(1, 24),
                         .max_logit_rows = 0,
                         .page_size = between(1, 9),
                         .window = between(1, 12)};
  limits.max_logit_rows = limits.max_num_seqs + between(0, 6);
  // 60 tokens fit, a few sequences of that length do not.
  limits.num_pages[0] = 60 / limits.page_size + 1 + between(0, 8);
  limits.num_pages[1] = window_pages(limits);
  return limits;
}

TEST(Scheduler, KeepsItsPromisesUnderRandomArrivals) {
  std::int64_t preemptions = 0;
  for (std::uint32_t seed = 1; seed <= 150; ++seed) {
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
        simulation.remove_any();
      }
      if (simulation.has_work()) {
        simulation.step();
      }
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_EQ(simulation.num_alive(), 0U) << "not finished after 5,000 steps";
    simulation.check_nothing_is_held();
    preemptions += simulation.scheduler().num_preemptions();
  }
  EXPECT_GT(preemptions, 100);
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
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SchedulerLimits limits = random_limits(seed);
    limits.num_pages[0] = limits.max_num_seqs * (60 / limits.page_size + 1);
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
