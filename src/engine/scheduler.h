// Decides what the next step computes. Data in, plan out: no model, no clock.
//
// A step takes one row of every sequence that is generating, admits who fits, and shares the rest
// of its rows among the prompts: half to the prompt that was admitted first, half to those with the
// fewest rows left, and what one cannot use to the other. So the oldest prompt always moves on by
// half a step, and a short one waits only for shorter ones. docs/scheduling.md has all the rules.
//
// A sequence that needs a page when none is to be had takes those of the youngest one, which starts
// over later with the same answer. The oldest sequence can always go on, so none starves, provided
// each fits in the cache on its own: `fits` says so beforehand.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/paged_cache.h"
#include "engine/sequence.h"
#include "model/batch_plan.h"

namespace nibble::engine {

struct SchedulerLimits {
  std::int32_t max_num_seqs = 1;
  std::int32_t max_batch_tokens = 512;
  std::int32_t max_logit_rows = 64;  // at least max_num_seqs, or a long prompt may starve
  std::int32_t page_size = 64;
  std::int32_t window = 0;  // of the window layers
  std::int32_t num_pages[model::kNumCacheGroups] = {0, 0};
  bool shares_prefixes = false;  // pages of equal prefixes, also of those that have ended
};

// Requests that may be admitted before an earlier one for which there are too few pages.
inline constexpr std::int32_t kMostOvertakes = 8;

// Pages of the window group that always suffice for `max_num_seqs` sequences and a step of
// `max_batch_tokens` rows. More of them keep prefixes.
std::int32_t window_pages(const SchedulerLimits& limits);

struct SchedulerCounters {
  std::int64_t num_preemptions = 0;
  std::int64_t num_admitted = 0;    // sequences, each once
  std::int64_t queried_tokens = 0;  // of their prompts
  std::int64_t hit_tokens = 0;      // of those, found in the cache
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  // True when a sequence of `num_tokens` can be held with nothing else in the cache.
  bool fits(std::int32_t num_tokens) const;

  void add(Sequence* sequence);
  // Forgets the sequence wherever it is. Its pages are available at once; whole ones can be found
  // by later sequences until they are evicted.
  void remove(Sequence* sequence);
  // Likewise, but nothing that it computed is found again.
  void discard(Sequence* sequence);

  // The next step; no rows when nothing is to do. Valid until the next call.
  const model::BatchPlan& schedule();
  // Sequences of the plan, in its order.
  std::span<Sequence* const> scheduled() const { return scheduled_; }
  // The step was computed: its rows are in the cache.
  void commit();

  bool has_work() const { return !waiting_.empty() || !running_.empty(); }
  std::int32_t num_waiting() const { return static_cast<std::int32_t>(waiting_.size()); }
  std::int32_t num_running() const { return static_cast<std::int32_t>(running_.size()); }
  std::int64_t num_preemptions() const { return counters_.num_preemptions; }
  const SchedulerCounters& counters() const { return counters_; }
  const PagedCache& cache() const { return cache_; }
  const PagePool& pool(model::CacheGroup group) const { return cache_.pool(group); }

 private:
  struct Budget {
    std::int32_t rows = 0;
    std::int32_t logit_rows = 0;
  };

  // False when some sequence that generates got no pages.
  bool plan_decodes();
  void admit();
  bool admit(Sequence* sequence);
  bool awaits_prefix(const Sequence& sequence) const;
  void plan_prompts(bool includes_last_rows);
  void share_rows();
  void plan_rows(Sequence* sequence, std::int32_t rows);
  model::SequencePlan spare_entry();
  Budget budget_left() const;
  bool reserve_or_preempt(Sequence* sequence, std::int32_t num_tokens);
  void preempt(Sequence* sequence);
  void forget(Sequence* sequence);

  SchedulerLimits limits_;
  PagedCache cache_;
  std::deque<Sequence*> waiting_;
  std::vector<Sequence*> running_;  // oldest first
  std::vector<Sequence*> scheduled_;
  std::vector<Sequence*> prompts_;  // of the step that is being planned
  model::BatchPlan plan_;
  std::vector<model::SequencePlan> spare_entries_;  // of earlier plans, for their memory
  SchedulerCounters counters_;
};

}  // namespace nibble::engine
