#include "engine/prefix_tree.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nibble::engine {

using model::CacheGroup;

bool LexicographicIds::operator()(std::span<const std::int32_t> a,
                                  std::span<const std::int32_t> b) const {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

PrefixNode* PrefixTree::find(PrefixNode* parent, std::span<const std::int32_t> ids) const {
  const auto found = parent->children.find(ids);
  return found == parent->children.end() ? nullptr : found->second.get();
}

PrefixNode* PrefixTree::add(PrefixNode* parent, std::span<const std::int32_t> ids) {
  const auto [at, is_new] = parent->children.try_emplace(
      std::vector<std::int32_t>(ids.begin(), ids.end()), std::make_unique<PrefixNode>());
  NIBBLE_CHECK(is_new);
  PrefixNode* node = at->second.get();
  node->parent = parent;
  node->self = at;
  ++num_nodes_;
  return node;
}

void PrefixTree::set_page(PrefixNode* node, CacheGroup group, std::int32_t page) {
  PrefixNode::Slot& slot = node->slots[static_cast<int>(group)];
  NIBBLE_CHECK(slot.page < 0 && slot.num_users == 0, slot.page, slot.num_users);
  slot.page = page;
  std::list<PrefixNode*>& idle = idle_[static_cast<int>(group)];
  slot.idle = idle.insert(idle.end(), node);
}

void PrefixTree::use(PrefixNode* node, CacheGroup group) {
  PrefixNode::Slot& slot = node->slots[static_cast<int>(group)];
  NIBBLE_CHECK(slot.page >= 0);
  if (slot.num_users++ == 0) {
    idle_[static_cast<int>(group)].erase(slot.idle);
  }
}

void PrefixTree::leave(PrefixNode* node, CacheGroup group) {
  PrefixNode::Slot& slot = node->slots[static_cast<int>(group)];
  NIBBLE_CHECK(slot.num_users > 0);
  if (--slot.num_users == 0) {
    std::list<PrefixNode*>& idle = idle_[static_cast<int>(group)];
    slot.idle = idle.insert(idle.end(), node);
  }
}

PrefixTree::Evicted PrefixTree::evict(CacheGroup group) {
  std::list<PrefixNode*>& idle = idle_[static_cast<int>(group)];
  NIBBLE_CHECK(!idle.empty());
  PrefixNode* node = idle.front();
  if (group == CacheGroup::kFull) {
    return remove(node);
  }
  idle.pop_front();
  Evicted out;
  std::swap(out.pages[static_cast<int>(group)], node->slots[static_cast<int>(group)].page);
  return out;
}

PrefixTree::Evicted PrefixTree::remove(PrefixNode* node) {
  NIBBLE_CHECK(node->children.empty(), node->children.size());
  Evicted out;
  for (int group = 0; group < model::kNumCacheGroups; ++group) {
    const PrefixNode::Slot& slot = node->slots[group];
    NIBBLE_CHECK(slot.num_users == 0, slot.num_users);
    if (slot.page >= 0) {
      idle_[group].erase(slot.idle);
      out.pages[group] = slot.page;
    }
  }
  node->parent->children.erase(node->self);
  --num_nodes_;
  return out;
}

}  // namespace nibble::engine
