#include "engine/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace nibble::engine {
namespace {

using model::CacheGroup;
using model::kNumCacheGroups;

// Waiting requests looked at in one step, so that a step costs the same however long the queue is.
constexpr std::size_t kLookAhead = 32;

std::int32_t pages_for(std::int32_t num_tokens, std::int32_t page_size) {
  return (num_tokens + page_size - 1) / page_size;
}

bool wants_logits(const Sequence& sequence, std::int32_t position) {
  const bool is_last = position + 1 == sequence.num_ids();
  const bool is_unscored = sequence.wants_prompt_logits() && position >= sequence.num_scored &&
                           position < sequence.num_prompt();
  return is_last || is_unscored;
}

// Logits wanted among the next `rows` rows.
std::int32_t logit_rows(const Sequence& sequence, std::int32_t rows) {
  std::int32_t count = 0;
  const std::int32_t end = sequence.num_computed + rows;
  const std::int32_t first = sequence.wants_prompt_logits()
                                 ? sequence.num_computed
                                 : std::max(sequence.num_computed, end - 1);
  for (std::int32_t position = first; position < end; ++position) {
    count += wants_logits(sequence, position) ? 1 : 0;
  }
  return count;
}

// The most of the next rows that stay within both budgets.
std::int32_t rows_within(const Sequence& sequence, std::int32_t row_budget,
                         std::int32_t logit_budget) {
  std::int32_t rows = std::min(sequence.num_remaining(), row_budget);
  // A row less wants at most one less.
  for (std::int32_t excess = 1; rows > 0 && excess > 0; rows -= excess) {
    excess = std::max(0, logit_rows(sequence, rows) - logit_budget);
  }
  return std::max(0, rows);
}

}  // namespace

std::int32_t window_pages(const SchedulerLimits& limits) {
  // n new rows see w - 1 earlier keys; that many consecutive tokens touch at most
  // (w + n) / page_size + 2 pages. The n of all sequences add up to the rows of the step.
  const std::int32_t tokens = limits.max_num_seqs * limits.window + limits.max_batch_tokens;
  return 2 * limits.max_num_seqs + pages_for(tokens, limits.page_size);
}

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits),
      cache_({.page_size = limits.page_size,
              .window = limits.window,
              .num_pages = {limits.num_pages[0], limits.num_pages[1]},
              .shares_prefixes = limits.shares_prefixes}) {
  plan_.page_size = limits.page_size;
}

bool Scheduler::fits(std::int32_t num_tokens) const {
  const std::int32_t window_rows = std::min(num_tokens, limits_.window + limits_.max_batch_tokens);
  return pages_for(num_tokens, limits_.page_size) <= pool(CacheGroup::kFull).num_pages() &&
         std::min(pages_for(num_tokens, limits_.page_size),
                  pages_for(window_rows, limits_.page_size) + 1) <=
             pool(CacheGroup::kWindow).num_pages();
}

void Scheduler::add(Sequence* sequence) { waiting_.push_back(sequence); }

void Scheduler::remove(Sequence* sequence) {
  cache_.release(*sequence);
  forget(sequence);
}

void Scheduler::discard(Sequence* sequence) {
  cache_.discard(*sequence);
  forget(sequence);
}

void Scheduler::forget(Sequence* sequence) {
  std::erase(waiting_, sequence);
  std::erase(running_, sequence);
  std::erase(scheduled_, sequence);
}

const model::BatchPlan& Scheduler::schedule() {
  plan_.token_ids.clear();
  std::move(plan_.sequences.begin(), plan_.sequences.end(), std::back_inserter(spare_entries_));
  plan_.sequences.clear();
  plan_.logit_rows.clear();
  scheduled_.clear();
  for (Sequence* sequence : running_) {
    sequence->is_planned = false;
    cache_.publish(*sequence);
    cache_.drop_outside_window(*sequence);
  }
  const std::int64_t num_preemptions = counters_.num_preemptions;
  const bool has_pages = plan_decodes() && counters_.num_preemptions == num_preemptions;
  if (has_pages) {  // otherwise newcomers would take the pages that running ones want next
    admit();
  }
  plan_prompts(has_pages);
  return plan_;
}

Scheduler::Budget Scheduler::budget_left() const {
  return {limits_.max_batch_tokens - plan_.num_tokens(),
          limits_.max_logit_rows - static_cast<std::int32_t>(plan_.logit_rows.size())};
}

bool Scheduler::plan_decodes() {
  bool has_pages = true;
  for (std::size_t i = 0; i < running_.size(); ++i) {  // preemption shortens running_ at its end
    Sequence* sequence = running_[i];
    const Budget left = budget_left();
    if (sequence->num_remaining() != 1 || left.rows == 0 || left.logit_rows == 0) {
      continue;
    }
    if (reserve_or_preempt(sequence, sequence->num_computed + 1)) {
      plan_rows(sequence, 1);
    } else {
      has_pages = false;
    }
  }
  return has_pages;
}

// In order of arrival. Those for which there are too few pages may be overtaken, but not often.
void Scheduler::admit() {
  std::vector<Sequence*> blocked;
  const auto can_pass = [](const Sequence* one) { return one->num_overtaken < kMostOvertakes; };
  std::size_t at = 0;
  while (at < std::min(waiting_.size(), kLookAhead) && num_running() < limits_.max_num_seqs &&
         budget_left().rows > 0 && std::all_of(blocked.begin(), blocked.end(), can_pass)) {
    Sequence* sequence = waiting_[at];
    if (awaits_prefix(*sequence)) {
      ++at;
    } else if (admit(sequence)) {
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
      for (Sequence* one : blocked) {
        ++one->num_overtaken;
      }
    } else {
      blocked.push_back(sequence);
      ++at;
    }
  }
}

// The whole prompt must find room beside what running sequences still need for theirs: admitting
// what must soon be preempted helps nobody.
bool Scheduler::admit(Sequence* sequence) {
  cache_.attach(*sequence);
  std::int32_t needed = cache_.num_missing(*sequence, CacheGroup::kFull, sequence->num_ids());
  for (const Sequence* other : running_) {
    needed += cache_.num_missing(*other, CacheGroup::kFull, other->num_ids());
  }
  if (needed > cache_.num_available(CacheGroup::kFull)) {
    cache_.release(*sequence);
    return false;
  }
  running_.push_back(sequence);
  sequence->is_planned = false;
  if (!sequence->was_admitted) {
    sequence->was_admitted = true;
    sequence->num_cached = sequence->num_computed;
    ++counters_.num_admitted;
    counters_.queried_tokens += sequence->num_prompt();
    counters_.hit_tokens += sequence->num_cached;
  }
  return true;
}

// True while an earlier request computes pages that this one could use: waiting for them is cheaper
// than computing them twice. Each request waits for earlier ones only, so for finitely many.
bool Scheduler::awaits_prefix(const Sequence& sequence) const {
  const std::int32_t most = cache_.most_reusable(sequence);
  for (const Sequence* other : running_) {
    const std::int32_t length = std::min(most, other->num_ids());
    if (other->id > sequence.id || other->num_remaining() <= 1 || length <= other->num_computed) {
      continue;
    }
    const auto ids = sequence.ids.begin();
    const auto differs = std::mismatch(ids, ids + length, other->ids.begin()).first;
    const auto common = static_cast<std::int32_t>(differs - ids);
    if (common / limits_.page_size * limits_.page_size > other->num_computed) {
      return true;
    }
  }
  return false;
}

// `includes_last_rows`: also who has a single row left, as a newcomer may.
void Scheduler::plan_prompts(bool includes_last_rows) {
  prompts_.clear();
  for (Sequence* sequence : running_) {
    if (!sequence->is_planned && (includes_last_rows || sequence->num_remaining() > 1)) {
      prompts_.push_back(sequence);
    }
  }
  share_rows();
  for (std::size_t i = 0; i < running_.size(); ++i) {  // preemption shortens running_ at its end
    Sequence* sequence = running_[i];
    const std::int32_t rows = std::exchange(sequence->num_granted, 0);
    if (rows > 0 && reserve_or_preempt(sequence, sequence->num_computed + rows)) {
      plan_rows(sequence, rows);
    }
  }
}

void Scheduler::share_rows() {
  Budget left = budget_left();
  const auto grant = [&](Sequence* sequence, const Budget& most) {
    const std::int32_t had = sequence->num_granted;
    const std::int32_t had_logits = logit_rows(*sequence, had);
    const std::int32_t rows = rows_within(*sequence, had + most.rows, had_logits + most.logit_rows);
    left.rows -= rows - had;
    left.logit_rows -= logit_rows(*sequence, rows) - had_logits;
    sequence->num_granted = rows;
  };
  if (!prompts_.empty()) {
    grant(prompts_.front(), {(left.rows + 1) / 2, (left.logit_rows + 1) / 2});
  }
  std::stable_sort(prompts_.begin(), prompts_.end(), [](const Sequence* a, const Sequence* b) {
    return a->num_remaining() < b->num_remaining();
  });
  for (Sequence* sequence : prompts_) {
    grant(sequence, left);
  }
}

model::SequencePlan Scheduler::spare_entry() {
  if (spare_entries_.empty()) {
    return {};
  }
  model::SequencePlan entry(std::move(spare_entries_.back()));
  spare_entries_.pop_back();
  return entry;
}

void Scheduler::plan_rows(Sequence* sequence, std::int32_t rows) {
  model::SequencePlan entry = spare_entry();
  entry.first_row = plan_.num_tokens();
  entry.num_rows = rows;
  entry.first_position = sequence->num_computed;
  for (int group = 0; group < kNumCacheGroups; ++group) {
    entry.tables[group] = sequence->tables[group];
  }
  for (std::int32_t row = 0; row < rows; ++row) {
    const std::int32_t position = sequence->num_computed + row;
    if (wants_logits(*sequence, position)) {
      plan_.logit_rows.push_back(plan_.num_tokens());
    }
    plan_.token_ids.push_back(sequence->ids[static_cast<std::size_t>(position)]);
  }
  plan_.sequences.push_back(std::move(entry));
  scheduled_.push_back(sequence);
  sequence->is_planned = true;
}

void Scheduler::commit() {
  for (std::size_t i = 0; i < scheduled_.size(); ++i) {
    scheduled_[i]->num_computed += plan_.sequences[i].num_rows;
  }
}

bool Scheduler::reserve_or_preempt(Sequence* sequence, std::int32_t num_tokens) {
  while (!cache_.reserve(*sequence, num_tokens)) {
    Sequence* youngest = running_.back();
    if (youngest->is_planned) {
      return false;  // its rows are in this plan already; wait for the next one
    }
    preempt(youngest);
    if (youngest == sequence) {
      return false;
    }
  }
  return true;
}

void Scheduler::preempt(Sequence* sequence) {
  cache_.release(*sequence);
  sequence->num_granted = 0;
  std::erase(running_, sequence);
  waiting_.push_front(sequence);
  ++counters_.num_preemptions;
}

}  // namespace nibble::engine
