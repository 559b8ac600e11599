#include "engine/paged_cache.h"

#include <algorithm>
#include <span>

#include "base/check.h"

namespace nibble::engine {
namespace {

using model::CacheGroup;
using model::kNumCacheGroups;
using model::PageTable;

constexpr int kFull = static_cast<int>(CacheGroup::kFull);
constexpr int kWindow = static_cast<int>(CacheGroup::kWindow);
constexpr CacheGroup kGroups[] = {CacheGroup::kFull, CacheGroup::kWindow};

std::int32_t num_shared(const Sequence& sequence) {
  return static_cast<std::int32_t>(sequence.prefix.size());
}

}  // namespace

PagedCache::PagedCache(const CacheLimits& limits)
    : limits_(limits),
      pools_{PagePool(limits.num_pages[kFull]), PagePool(limits.num_pages[kWindow])} {}

// The next row sees keys from num_computed - window + 1 on.
std::int32_t PagedCache::first_window_page(std::int32_t num_computed) const {
  return std::max(0, num_computed - limits_.window + 1) / limits_.page_size;
}

std::int32_t PagedCache::most_reusable(const Sequence& sequence) const {
  std::int32_t tokens = sequence.num_ids() - 1;
  if (sequence.wants_prompt_logits()) {
    tokens = std::min(tokens, sequence.num_scored);
  }
  return limits_.shares_prefixes ? tokens / limits_.page_size * limits_.page_size : 0;
}

void PagedCache::attach(Sequence& sequence) {
  NIBBLE_CHECK(sequence.prefix.empty() && sequence.num_computed == 0, sequence.num_computed);
  const std::span<const std::int32_t> ids = sequence.ids;
  const auto page_size = static_cast<std::size_t>(limits_.page_size);
  const std::int32_t most = most_reusable(sequence) / limits_.page_size;
  std::vector<PrefixNode*>& prefix = sequence.prefix;
  std::int32_t usable = 0;
  std::int32_t first_unbroken = 0;  // since here the window group has no hole
  PrefixNode* node = tree_.root();
  for (std::int32_t count = 1; count <= most; ++count) {
    node = tree_.find(node, ids.subspan(prefix.size() * page_size, page_size));
    if (node == nullptr) {
      break;
    }
    prefix.push_back(node);
    first_unbroken = node->page(CacheGroup::kWindow) < 0 ? count : first_unbroken;
    if (first_unbroken <= first_window_page(count * limits_.page_size)) {
      usable = count;
    }
  }
  prefix.resize(static_cast<std::size_t>(usable));
  sequence.num_computed = usable * limits_.page_size;
  sequence.num_attached = usable;
  sequence.tables[kWindow].first_page = std::min(usable, first_window_page(sequence.num_computed));
  for (std::int32_t page = 0; page < usable; ++page) {
    for (const CacheGroup group : kGroups) {
      PageTable& table = sequence.tables[static_cast<int>(group)];
      if (page >= table.first_page) {
        tree_.use(node_of(sequence, page), group);
        table.pages.push_back(node_of(sequence, page)->page(group));
      }
    }
  }
}

std::int32_t PagedCache::num_missing(const Sequence& sequence, CacheGroup group,
                                     std::int32_t num_tokens) const {
  const PageTable& table = sequence.tables[static_cast<int>(group)];
  const std::int32_t held = table.first_page + static_cast<std::int32_t>(table.pages.size());
  const std::int32_t wanted = (num_tokens + limits_.page_size - 1) / limits_.page_size;
  return std::max(0, wanted - held);
}

bool PagedCache::reserve(Sequence& sequence, std::int32_t num_tokens) {
  for (const CacheGroup group : kGroups) {
    if (num_missing(sequence, group, num_tokens) > num_available(group)) {
      return false;
    }
  }
  for (const CacheGroup group : kGroups) {
    for (std::int32_t left = num_missing(sequence, group, num_tokens); left > 0; --left) {
      sequence.tables[static_cast<int>(group)].pages.push_back(take(group));
    }
  }
  return true;
}

std::int32_t PagedCache::take(CacheGroup group) {
  PagePool& pool = pools_[static_cast<int>(group)];
  if (pool.num_free() == 0) {
    reclaim(tree_.evict(group));
    ++num_evicted_[static_cast<int>(group)];
  }
  return pool.take();
}

void PagedCache::reclaim(const PrefixTree::Evicted& evicted) {
  for (int group = 0; group < kNumCacheGroups; ++group) {
    if (evicted.pages[group] >= 0) {
      pools_[group].give_back(evicted.pages[group]);
    }
  }
}

// The node that owns a page of the sequence; null when the sequence does.
PrefixNode* PagedCache::node_of(const Sequence& sequence, std::int32_t page) const {
  return page < num_shared(sequence) ? sequence.prefix[static_cast<std::size_t>(page)] : nullptr;
}

void PagedCache::publish(Sequence& sequence) {
  if (!limits_.shares_prefixes) {
    return;
  }
  const std::span<const std::int32_t> ids = sequence.ids;
  const auto page_size = static_cast<std::size_t>(limits_.page_size);
  while ((num_shared(sequence) + 1) * limits_.page_size <= sequence.num_computed) {
    const auto page_ids = ids.subspan(sequence.prefix.size() * page_size, page_size);
    PrefixNode* parent = sequence.prefix.empty() ? tree_.root() : sequence.prefix.back();
    PrefixNode* node = tree_.find(parent, page_ids);
    node = node == nullptr ? tree_.add(parent, page_ids) : node;
    for (const CacheGroup group : kGroups) {
      PageTable& table = sequence.tables[static_cast<int>(group)];
      std::int32_t& own =
          table.pages.at(static_cast<std::size_t>(num_shared(sequence) - table.first_page));
      if (node->page(group) < 0) {
        tree_.set_page(node, group, own);
      } else {  // worth the same: kernels promise it to the bit on the processor
        pools_[static_cast<int>(group)].give_back(own);
        own = node->page(group);
      }
      tree_.use(node, group);
    }
    sequence.prefix.push_back(node);
  }
}

void PagedCache::drop_outside_window(Sequence& sequence) {
  PageTable& table = sequence.tables[kWindow];
  const std::int32_t first_needed = first_window_page(sequence.num_computed);
  std::size_t count = 0;
  for (; count < table.pages.size() && table.first_page < first_needed; ++count) {
    if (PrefixNode* node = node_of(sequence, table.first_page++)) {
      tree_.leave(node, CacheGroup::kWindow);
    } else {
      pools_[kWindow].give_back(table.pages[count]);
    }
  }
  table.pages.erase(table.pages.begin(), table.pages.begin() + static_cast<std::ptrdiff_t>(count));
}

void PagedCache::release(Sequence& sequence) {
  publish(sequence);
  give_up(sequence);
  sequence.prefix.clear();
}

void PagedCache::discard(Sequence& sequence) {
  give_up(sequence);
  // Deepest first; a node that others use or go on from ends it, since so do its ancestors.
  while (num_shared(sequence) > sequence.num_attached) {
    PrefixNode* node = sequence.prefix.back();
    if (node->slots[kFull].num_users > 0 || !node->children.empty()) {
      break;
    }
    reclaim(tree_.remove(node));
    sequence.prefix.pop_back();
  }
  sequence.prefix.clear();
}

// Window pages from the first on, so that those nearest to the end are evicted last; nodes from the
// deepest up, as the tree wants it.
void PagedCache::give_up(Sequence& sequence) {
  for (const CacheGroup group : kGroups) {
    PageTable& table = sequence.tables[static_cast<int>(group)];
    for (std::size_t i = 0; i < table.pages.size(); ++i) {
      const bool is_forward = group == CacheGroup::kWindow;
      const std::size_t at = is_forward ? i : table.pages.size() - 1 - i;
      const std::int32_t page = table.first_page + static_cast<std::int32_t>(at);
      if (PrefixNode* node = node_of(sequence, page)) {
        tree_.leave(node, group);
      } else {
        pools_[static_cast<int>(group)].give_back(table.pages[at]);
      }
    }
    table = {};
  }
  sequence.num_computed = 0;
}

}  // namespace nibble::engine
