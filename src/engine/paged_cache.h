// Which page holds what: the page tables of sequences, and the prefixes they share.
//
// Every page of a group is in exactly one of three places: free in the pool, owned by one sequence,
// or owned by a node of the prefix tree, which any number of sequences may use. Pages are shared
// when they are whole and computed, and nothing is ever written to such a page, so no copy is made.
#pragma once

#include <cstdint>

#include "engine/page_pool.h"
#include "engine/prefix_tree.h"
#include "engine/sequence.h"
#include "model/batch_plan.h"

namespace nibble::engine {

struct CacheLimits {
  std::int32_t page_size = 64;
  std::int32_t window = 0;  // of the window layers
  std::int32_t num_pages[model::kNumCacheGroups] = {0, 0};
  bool shares_prefixes = false;
};

class PagedCache {
 public:
  explicit PagedCache(const CacheLimits& limits);

  const PagePool& pool(model::CacheGroup group) const { return pools_[static_cast<int>(group)]; }
  const PrefixTree& tree() const { return tree_; }
  // Pages that nobody uses: free ones and idle ones of the tree.
  std::int32_t num_available(model::CacheGroup group) const {
    return pool(group).num_free() + tree_.num_idle(group);
  }
  // Idle pages taken for something else so far.
  std::int64_t num_evicted(model::CacheGroup group) const {
    return num_evicted_[static_cast<int>(group)];
  }

  // Most tokens of the sequence that need not be computed, were they all cached: whole pages, not
  // the last token, and no prompt position whose logits are still to be reported.
  std::int32_t most_reusable(const Sequence& sequence) const;
  // Gives a sequence without pages the longest cached prefix that it can go on from, and sets
  // `num_computed` to its length. A prefix of P tokens needs its pages of the full group and those
  // of the window group that the row at P sees; a prefix with a hole there does not count, a
  // shorter one may.
  void attach(Sequence& sequence);

  // Pages of the group that the sequence lacks to hold its first `num_tokens` tokens.
  std::int32_t num_missing(const Sequence& sequence, model::CacheGroup group,
                           std::int32_t num_tokens) const;
  // Takes the missing pages, evicting idle ones; false, and nothing taken, when there are too few.
  bool reserve(Sequence& sequence, std::int32_t num_tokens);

  // Hands the pages that the sequence has computed as a whole to the tree, or exchanges them for
  // those that the tree has already.
  void publish(Sequence& sequence);
  // Gives up the window pages that the next row no longer sees. After `publish`.
  void drop_outside_window(Sequence& sequence);
  // Publishes, then gives up everything.
  void release(Sequence& sequence);
  // Gives up everything and forgets what this sequence has put into the tree, unless others use it.
  void discard(Sequence& sequence);

 private:
  std::int32_t first_window_page(std::int32_t num_computed) const;
  PrefixNode* node_of(const Sequence& sequence, std::int32_t page) const;
  std::int32_t take(model::CacheGroup group);
  void reclaim(const PrefixTree::Evicted& evicted);
  void give_up(Sequence& sequence);

  CacheLimits limits_;
  PagePool pools_[model::kNumCacheGroups];
  PrefixTree tree_;
  std::int64_t num_evicted_[model::kNumCacheGroups] = {0, 0};
};

}  // namespace nibble::engine
