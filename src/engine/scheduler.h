// Decides what the next step computes. Data in, plan out: no model, no clock.
//
// Each step takes one row of every sequence that is generating, then fills the token budget with
// chunks of prompts in order of arrival. A sequence that needs a page when none is free takes those
// of the youngest one, which starts over later with the same answer (recomputation). The oldest
// sequence can always go on, so none starves, provided each fits in the cache on its own: `fits`
// says so beforehand.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/page_pool.h"
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
};

// Pages of the window group that always suffice for `max_num_seqs` sequences and a step of
// `max_batch_tokens` rows.
std::int32_t window_pages(const SchedulerLimits& limits);

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  // True when a sequence of `num_tokens` can be held with nothing else in the cache.
  bool fits(std::int32_t num_tokens) const;

  void add(Sequence* sequence);
  // Forgets the sequence wherever it is and frees its pages at once.
  void remove(Sequence* sequence);

  // The next step; no rows when nothing is to do. Valid until the next call.
  const model::BatchPlan& schedule();
  // Sequences of the plan, in its order.
  std::span<Sequence* const> scheduled() const { return scheduled_; }
  // The step was computed: its rows are in the cache.
  void commit();

  bool has_work() const { return !waiting_.empty() || !running_.empty(); }
  std::int32_t num_waiting() const { return static_cast<std::int32_t>(waiting_.size()); }
  std::int32_t num_running() const { return static_cast<std::int32_t>(running_.size()); }
  std::int64_t num_preemptions() const { return num_preemptions_; }
  const PagePool& pool(model::CacheGroup group) const { return pools_[static_cast<int>(group)]; }

 private:
  // One row of each sequence that generates, or chunks of the prompts; false when some sequence
  // got no pages.
  bool plan_running(bool is_decode);
  void plan_rows(Sequence* sequence);
  void admit();
  std::int32_t rows_allowed(const Sequence& sequence) const;
  bool reserve(Sequence& sequence, std::int32_t num_tokens);
  bool reserve_or_preempt(Sequence* sequence, std::int32_t num_tokens);
  std::int32_t pages_missing(const Sequence& sequence, int group, std::int32_t num_tokens) const;
  void drop_outside_window(Sequence& sequence);
  void release(Sequence& sequence);
  void preempt(Sequence* sequence);
  bool is_scheduled(const Sequence* sequence) const;

  SchedulerLimits limits_;
  PagePool pools_[model::kNumCacheGroups];
  std::deque<Sequence*> waiting_;
  std::vector<Sequence*> running_;  // oldest first
  std::vector<Sequence*> scheduled_;
  model::BatchPlan plan_;
  std::int64_t num_preemptions_ = 0;
};

}  // namespace nibble::engine
