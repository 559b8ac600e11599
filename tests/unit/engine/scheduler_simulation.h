// A scheduler between made-up requests and a made-up cache, which checks every promise at every
// step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler.h"

namespace nibble::engine {

// A sequence with its own end: it is removed when it has `target` ids.
struct Load {
  Sequence sequence;
  std::int32_t target = 0;
  std::int32_t scored = 0;
};

// What a model would have in its cache: in each slot the history, as a hash, up to the token whose
// keys it holds.
class CacheModel {
 public:
  explicit CacheModel(const SchedulerLimits& limits) : limits_(limits) {}

  // Writes the rows of the plan, then reads every key that each row attends to.
  void run(const model::BatchPlan& plan, std::span<Sequence* const> sequences) {
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
      const std::vector<std::uint64_t> history = history_of(*sequences[i]);
      each_row(plan.sequences[i], [&](int group, std::int32_t position) {
        slot(plan.sequences[i].tables[group], group, position) =
            history[static_cast<std::size_t>(position)];
      });
    }
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
      const std::vector<std::uint64_t> history = history_of(*sequences[i]);
      each_row(plan.sequences[i], [&](int group, std::int32_t position) {
        const bool is_window = group == static_cast<int>(model::CacheGroup::kWindow);
        const std::int32_t first = is_window ? std::max(0, position - limits_.window + 1) : 0;
        for (std::int32_t key = first; key <= position; ++key) {
          ASSERT_EQ(slot(plan.sequences[i].tables[group], group, key),
                    history[static_cast<std::size_t>(key)])
              << "group " << group << ", row at " << position << ", key " << key << " of sequence "
              << sequences[i]->id;
        }
      });
    }
  }

  // What a free page held must not matter.
  void poison(int group, std::int32_t page) {
    for (std::int32_t i = 0; i < limits_.page_size; ++i) {
      slots_[group][page * limits_.page_size + i] = 0;
    }
  }

 private:
  static std::vector<std::uint64_t> history_of(const Sequence& sequence) {
    std::vector<std::uint64_t> out;
    std::uint64_t hash = 14695981039346656037ULL;
    for (const std::int32_t id : sequence.ids) {
      hash = (hash ^ static_cast<std::uint64_t>(id + 1)) * 1099511628211ULL;
      out.push_back(hash);
    }
    return out;
  }

  template <typename Visit>
  void each_row(const model::SequencePlan& plan, const Visit& visit) {
    for (int group = 0; group < model::kNumCacheGroups; ++group) {
      for (std::int32_t row = 0; row < plan.num_rows; ++row) {
        visit(group, plan.first_position + row);
      }
    }
  }

  std::uint64_t& slot(const model::PageTable& table, int group, std::int32_t position) {
    const std::int32_t page = position / limits_.page_size - table.first_page;
    EXPECT_TRUE(page >= 0 && page < static_cast<std::int32_t>(table.pages.size()))
        << "position " << position << " is in none of the pages from " << table.first_page;
    const std::int32_t physical = table.pages.at(static_cast<std::size_t>(page));
    return slots_[group][physical * limits_.page_size + position % limits_.page_size];
  }

  SchedulerLimits limits_;
  std::map<std::int32_t, std::uint64_t> slots_[model::kNumCacheGroups];
};

// Adds, steps, cancels; checks every promise of the scheduler at every step.
class Simulation {
 public:
  Simulation(const SchedulerLimits& limits, std::uint32_t seed)
      : limits_(limits), scheduler_(limits), cache_(limits), random_(seed) {}

  std::int32_t below(std::int32_t limit) {
    return std::uniform_int_distribution<std::int32_t>(0, limit - 1)(random_);
  }

  // One of three beginnings, then anything: prefixes are shared, and part ways.
  Load* add(std::int32_t num_prompt, std::int32_t target, bool wants_prompt_logits) {
    std::vector<std::int32_t> prompt;
    const std::int32_t family = below(3);
    const std::int32_t common = below(num_prompt + 1);
    for (std::int32_t i = 0; i < num_prompt; ++i) {
      prompt.push_back(i < common ? family : below(3));
    }
    return add(std::move(prompt), target, wants_prompt_logits);
  }

  Load* add(std::vector<std::int32_t> prompt, std::int32_t target, bool wants_prompt_logits) {
    auto load = std::make_unique<Load>();
    load->sequence.id = ++last_id_;
    load->sequence.ids = load->sequence.request.prompt = std::move(prompt);
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
  const std::vector<std::unique_ptr<Load>>& loads() const { return loads_; }
  bool is_alive(const Load* load) const {
    return std::any_of(loads_.begin(), loads_.end(),
                       [&](const auto& other) { return other.get() == load; });
  }

  // As cancelled, or as failed.
  void remove_any(bool is_failed) {
    if (!loads_.empty()) {
      remove(static_cast<std::size_t>(below(static_cast<std::int32_t>(loads_.size()))), is_failed);
    }
  }
  void remove_first() { remove(0, false); }

  void step() {
    const model::BatchPlan& plan = scheduler_.schedule();
    if (has_work()) {
      ASSERT_GT(plan.num_tokens(), 0) << "a step without rows while there is work";
    }
    check_budgets(plan);
    check_pages();
    check_windows();
    cache_.run(plan, scheduler_.scheduled());
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    scheduler_.commit();
    finish_rows(plan);
    poison_free_pages();
  }

  void check_nothing_is_used() const {
    for (int group = 0; group < model::kNumCacheGroups; ++group) {
      const auto name = static_cast<model::CacheGroup>(group);
      EXPECT_EQ(scheduler_.cache().num_available(name), scheduler_.pool(name).num_pages())
          << "group " << group;
    }
  }

  // Every page is free, owned by one sequence, or owned by one node, whose users are the sequences
  // that have it in their tables.
  void check_pages() {
    for (int group = 0; group < model::kNumCacheGroups; ++group) {
      std::map<std::int32_t, std::int32_t> holders;  // by page
      for (const auto& load : loads_) {
        for (const std::int32_t page : load->sequence.tables[group].pages) {
          ++holders[page];
        }
      }
      std::int32_t num_owned = 0;
      std::int32_t num_idle = 0;
      check_nodes(scheduler_.cache().tree().root(), group, holders, num_owned, num_idle);
      for (const auto& [page, count] : holders) {  // what is left is in no node
        ASSERT_EQ(count, 1) << "page " << page << " of group " << group << " in two tables";
        ++num_owned;
      }
      const auto name = static_cast<model::CacheGroup>(group);
      ASSERT_EQ(scheduler_.pool(name).num_free() + num_owned, scheduler_.pool(name).num_pages());
      ASSERT_EQ(scheduler_.cache().tree().num_idle(name), num_idle);
    }
  }

 private:
  void check_windows() {
    for (const Sequence* sequence : scheduler_.scheduled()) {
      const auto& table = sequence->tables[static_cast<int>(model::CacheGroup::kWindow)];
      EXPECT_GT((table.first_page + 1) * limits_.page_size,
                sequence->num_computed - limits_.window + 1)
          << "a page wholly behind the window";
    }
  }

  void remove(std::size_t at, bool is_failed) {
    Load* load = loads_[at].get();
    is_failed ? scheduler_.discard(&load->sequence) : scheduler_.remove(&load->sequence);
    retire(at);
    poison_free_pages();
  }

  // Kept, so that its address is not another's.
  void retire(std::size_t at) {
    ended_.push_back(std::move(loads_[at]));
    loads_.erase(loads_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void check_nodes(const PrefixNode* node, int group, std::map<std::int32_t, std::int32_t>& holders,
                   std::int32_t& num_owned, std::int32_t& num_idle) {
    for (const auto& [ids, child] : node->children) {
      const PrefixNode::Slot& slot = child->slots[group];
      ASSERT_EQ(ids.size(), static_cast<std::size_t>(limits_.page_size));
      ASSERT_TRUE(slot.page >= 0 || group == 1) << "a node without a page";
      if (slot.page >= 0) {
        ASSERT_FALSE(scheduler_.pool(static_cast<model::CacheGroup>(group)).is_free(slot.page));
        const auto held = holders.find(slot.page);
        ASSERT_EQ(slot.num_users, held == holders.end() ? 0 : held->second);
        if (held != holders.end()) {
          holders.erase(held);
        }
        ++num_owned;
        num_idle += slot.num_users == 0 ? 1 : 0;
      }
      check_nodes(child.get(), group, holders, num_owned, num_idle);
    }
  }

  void poison_free_pages() {
    for (int group = 0; group < model::kNumCacheGroups; ++group) {
      const PagePool& pool = scheduler_.pool(static_cast<model::CacheGroup>(group));
      for (std::int32_t page = 0; page < pool.num_pages(); ++page) {
        if (pool.is_free(page)) {
          cache_.poison(group, page);
        }
      }
    }
  }

  std::size_t index_of(const Sequence* sequence) const {
    const auto at = std::find_if(loads_.begin(), loads_.end(),
                                 [&](const auto& load) { return &load->sequence == sequence; });
    return static_cast<std::size_t>(at - loads_.begin());
  }

  void check_budgets(const model::BatchPlan& plan) {
    EXPECT_LE(plan.num_tokens(), limits_.max_batch_tokens);
    EXPECT_LE(plan.logit_rows.size(), static_cast<std::size_t>(limits_.max_logit_rows));
    EXPECT_LE(scheduler_.num_running(), limits_.max_num_seqs);
    EXPECT_TRUE(std::is_sorted(plan.logit_rows.begin(), plan.logit_rows.end()));
    std::int32_t rows = 0;
    for (const model::SequencePlan& sequence : plan.sequences) {
      EXPECT_EQ(sequence.first_row, rows);
      EXPECT_GT(sequence.num_rows, 0);
      rows += sequence.num_rows;
    }
    EXPECT_EQ(rows, plan.num_tokens());
    EXPECT_EQ(scheduler_.scheduled().size(), plan.sequences.size());
    const std::set<const Sequence*> distinct(scheduler_.scheduled().begin(),
                                             scheduler_.scheduled().end());
    EXPECT_EQ(distinct.size(), plan.sequences.size()) << "a sequence twice in a plan";
  }

  // Logit rows: each prompt position once, in order, for those who want them; one for each token.
  void finish_rows(const model::BatchPlan& plan) {
    std::size_t row = 0;
    const std::vector<Sequence*> sequences(scheduler_.scheduled().begin(),
                                           scheduler_.scheduled().end());
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const model::SequencePlan& entry = plan.sequences[i];
      Load* load = loads_[index_of(sequences[i])].get();
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
        sequences[i]->ids.push_back(below(2));
        if (sequences[i]->num_ids() >= load->target) {
          EXPECT_TRUE(!sequences[i]->wants_prompt_logits() ||
                      load->scored == sequences[i]->num_prompt());
          scheduler_.remove(&load->sequence);
          retire(index_of(sequences[i]));
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
  std::vector<std::unique_ptr<Load>> ended_;
  SequenceId last_id_ = 0;
};

}  // namespace nibble::engine
