#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace nibble::engine {
namespace {

using model::CacheGroup;
using model::kNumCacheGroups;
using model::PageTable;

constexpr int kFull = static_cast<int>(CacheGroup::kFull);
constexpr int kWindow = static_cast<int>(CacheGroup::kWindow);

std::int32_t pages_for(std::int32_t num_tokens, std::int32_t page_size) {
  return (num_tokens + page_size - 1) / page_size;
}

}  // namespace

std::int32_t window_pages(const SchedulerLimits& limits) {
  // n new rows see w - 1 earlier keys; that many consecutive tokens touch at most
  // (w + n) / page_size + 2 pages. The n of all sequences add up to the rows of the step.
  const std::int32_t tokens = limits.max_num_seqs * limits.window + limits.max_batch_tokens;
  return 2 * limits.max_num_seqs + pages_for(tokens, limits.page_size);
}

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits), pools_{PagePool(limits.num_pages[0]), PagePool(limits.num_pages[1])} {
  plan_.page_size = limits.page_size;
}

bool Scheduler::fits(std::int32_t num_tokens) const {
  const std::int32_t window_rows = std::min(num_tokens, limits_.window + limits_.max_batch_tokens);
  return pages_for(num_tokens, limits_.page_size) <= pools_[kFull].num_pages() &&
         std::min(pages_for(num_tokens, limits_.page_size),
                  pages_for(window_rows, limits_.page_size) + 1) <= pools_[kWindow].num_pages();
}

void Scheduler::add(Sequence* sequence) { waiting_.push_back(sequence); }

void Scheduler::remove(Sequence* sequence) {
  release(*sequence);
  std::erase(waiting_, sequence);
  std::erase(running_, sequence);
  std::erase(scheduled_, sequence);
}

const model::BatchPlan& Scheduler::schedule() {
  plan_.token_ids.clear();
  plan_.sequences.clear();
  plan_.logit_rows.clear();
  scheduled_.clear();
  for (Sequence* sequence : running_) {
    drop_outside_window(*sequence);
  }
  const bool has_decoded = plan_running(true);
  const bool has_prefilled = plan_running(false);
  if (has_decoded && has_prefilled) {  // newcomers would take the pages that running ones wait for
    admit();
  }
  return plan_;
}

bool Scheduler::plan_running(bool is_decode) {
  bool has_pages = true;
  const std::vector<Sequence*> running = running_;  // preemption changes running_
  for (Sequence* sequence : running) {
    const bool is_running = std::find(running_.begin(), running_.end(), sequence) != running_.end();
    if (!is_running || (sequence->num_remaining() == 1) != is_decode || is_scheduled(sequence)) {
      continue;
    }
    const std::int32_t rows = rows_allowed(*sequence);
    if (rows == 0) {
      continue;
    }
    if (reserve_or_preempt(sequence, sequence->num_computed + rows)) {
      plan_rows(sequence);
    } else {
      has_pages = false;
    }
  }
  return has_pages;
}

void Scheduler::admit() {
  while (!waiting_.empty() && num_running() < limits_.max_num_seqs) {
    Sequence* sequence = waiting_.front();
    // The whole prompt must find room now: admitting what must soon be preempted helps nobody.
    if (rows_allowed(*sequence) == 0 ||
        pages_for(sequence->num_ids(), limits_.page_size) > pools_[kFull].num_free() ||
        !reserve(*sequence, sequence->num_computed + rows_allowed(*sequence))) {
      return;
    }
    waiting_.pop_front();
    running_.push_back(sequence);
    plan_rows(sequence);
  }
}

std::int32_t Scheduler::rows_allowed(const Sequence& sequence) const {
  const std::int32_t budget = limits_.max_batch_tokens - plan_.num_tokens();
  const std::int32_t logit_budget =
      limits_.max_logit_rows - static_cast<std::int32_t>(plan_.logit_rows.size());
  std::int32_t rows = std::min(sequence.num_remaining(), budget);
  if (sequence.wants_prompt_logits()) {
    rows = std::min(rows, logit_budget);
  }
  // The last row of the last chunk needs logits too.
  return logit_budget > 0 || rows < sequence.num_remaining() ? rows : rows - 1;
}

void Scheduler::plan_rows(Sequence* sequence) {
  const std::int32_t rows = rows_allowed(*sequence);
  model::SequencePlan entry{
      .first_row = plan_.num_tokens(), .num_rows = rows, .first_position = sequence->num_computed};
  for (int group = 0; group < kNumCacheGroups; ++group) {
    entry.tables[group] = sequence->tables[group];
  }
  for (std::int32_t row = 0; row < rows; ++row) {
    const std::int32_t position = sequence->num_computed + row;
    const bool is_last = position + 1 == sequence->num_ids();
    const bool is_unscored = sequence->wants_prompt_logits() && position >= sequence->num_scored &&
                             position < sequence->num_prompt();
    if (is_last || is_unscored) {
      plan_.logit_rows.push_back(plan_.num_tokens());
    }
    plan_.token_ids.push_back(sequence->ids[static_cast<std::size_t>(position)]);
  }
  plan_.sequences.push_back(std::move(entry));
  scheduled_.push_back(sequence);
}

void Scheduler::commit() {
  for (std::size_t i = 0; i < scheduled_.size(); ++i) {
    scheduled_[i]->num_computed += plan_.sequences[i].num_rows;
  }
}

std::int32_t Scheduler::pages_missing(const Sequence& sequence, int group,
                                      std::int32_t num_tokens) const {
  const PageTable& table = sequence.tables[group];
  const std::int32_t held = table.first_page + static_cast<std::int32_t>(table.pages.size());
  return std::max(0, pages_for(num_tokens, limits_.page_size) - held);
}

bool Scheduler::reserve(Sequence& sequence, std::int32_t num_tokens) {
  std::int32_t missing[kNumCacheGroups];
  for (int group = 0; group < kNumCacheGroups; ++group) {
    missing[group] = pages_missing(sequence, group, num_tokens);
    if (missing[group] > pools_[group].num_free()) {
      return false;
    }
  }
  for (int group = 0; group < kNumCacheGroups; ++group) {
    for (std::int32_t page = 0; page < missing[group]; ++page) {
      sequence.tables[group].pages.push_back(pools_[group].take());
    }
  }
  return true;
}

bool Scheduler::reserve_or_preempt(Sequence* sequence, std::int32_t num_tokens) {
  while (!reserve(*sequence, num_tokens)) {
    Sequence* youngest = running_.back();
    if (is_scheduled(youngest)) {
      return false;  // its rows are in this plan already; wait for the next one
    }
    preempt(youngest);
    if (youngest == sequence) {
      return false;
    }
  }
  return true;
}

// The next row sees keys from num_computed - window + 1 on; pages wholly before that are done with.
void Scheduler::drop_outside_window(Sequence& sequence) {
  PageTable& table = sequence.tables[kWindow];
  const std::int32_t first_needed =
      std::max(0, sequence.num_computed - limits_.window + 1) / limits_.page_size;
  while (!table.pages.empty() && table.first_page < first_needed) {
    pools_[kWindow].give_back(table.pages.front());
    table.pages.erase(table.pages.begin());
    ++table.first_page;
  }
}

void Scheduler::release(Sequence& sequence) {
  for (int group = 0; group < kNumCacheGroups; ++group) {
    for (const std::int32_t page : sequence.tables[group].pages) {
      pools_[group].give_back(page);
    }
    sequence.tables[group] = {};
  }
}

void Scheduler::preempt(Sequence* sequence) {
  release(*sequence);
  sequence->num_computed = 0;
  std::erase(running_, sequence);
  waiting_.push_front(sequence);
  ++num_preemptions_;
}

bool Scheduler::is_scheduled(const Sequence* sequence) const {
  return std::find(scheduled_.begin(), scheduled_.end(), sequence) != scheduled_.end();
}

}  // namespace nibble::engine
