// Which prefixes are in the cache: a radix tree whose edges are whole pages of token ids.
//
//   root --[ids of page 0]--> node --[ids of page 1]--> node ...
//                        \--[other ids]--> node
//
// A node owns the page of each cache group that holds the keys and values of its tokens after those
// of its ancestors. Ids themselves are the keys of the tree, so two prefixes share a node only when
// they are equal; there is no hash that could collide. The window group may have a hole (page -1)
// where its page was needed elsewhere; the full group never has, since a node goes with its page.
//
// Users are counted for each node and group. A page without users is idle: it stays until it is
// evicted, the one that was left longest ago first. Who uses a node uses its ancestors as well and
// leaves them after it, so the first idle page of the full group is always that of a leaf.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "model/batch_plan.h"

namespace nibble::engine {

struct PrefixNode;

struct LexicographicIds {
  using is_transparent = void;
  bool operator()(std::span<const std::int32_t> a, std::span<const std::int32_t> b) const;
};
using PrefixChildren =
    std::map<std::vector<std::int32_t>, std::unique_ptr<PrefixNode>, LexicographicIds>;

struct PrefixNode {
  struct Slot {
    std::int32_t page = -1;  // -1: none
    std::int32_t num_users = 0;
    std::list<PrefixNode*>::iterator idle;  // place in the list of idle ones, when in it
  };
  PrefixNode* parent = nullptr;  // null: the root
  PrefixChildren children;
  PrefixChildren::iterator self;  // in the parent's children
  Slot slots[model::kNumCacheGroups];

  std::int32_t page(model::CacheGroup group) const { return slots[static_cast<int>(group)].page; }
};

class PrefixTree {
 public:
  PrefixTree() = default;
  PrefixTree(const PrefixTree&) = delete;  // nodes point to each other
  PrefixTree& operator=(const PrefixTree&) = delete;

  PrefixNode* root() { return &root_; }
  const PrefixNode* root() const { return &root_; }
  // The child for a page of ids; null when there is none.
  PrefixNode* find(PrefixNode* parent, std::span<const std::int32_t> ids) const;
  // A new child, with no pages and no users. `parent` must be in use or the root.
  PrefixNode* add(PrefixNode* parent, std::span<const std::int32_t> ids);

  // Gives the node, which has none of that group, a page.
  void set_page(PrefixNode* node, model::CacheGroup group, std::int32_t page);
  // The page must be there.
  void use(PrefixNode* node, model::CacheGroup group);
  // A user of the full group's page leaves the deepest node first.
  void leave(PrefixNode* node, model::CacheGroup group);

  std::int32_t num_nodes() const { return num_nodes_; }
  // Pages that can be evicted, one after the other.
  std::int32_t num_idle(model::CacheGroup group) const {
    return static_cast<std::int32_t>(idle_[static_cast<int>(group)].size());
  }

  // Pages that left the tree; -1: none of that group.
  struct Evicted {
    std::int32_t pages[model::kNumCacheGroups] = {-1, -1};
  };
  // Takes the idle page that was left longest ago. A page of the full group takes its node with it,
  // and so the node's page of the window group. There must be an idle one.
  Evicted evict(model::CacheGroup group);
  // Removes a node that has neither users nor children.
  Evicted remove(PrefixNode* node);

 private:
  PrefixNode root_;
  std::list<PrefixNode*> idle_[model::kNumCacheGroups];  // left longest ago first
  std::int32_t num_nodes_ = 0;
};

}  // namespace nibble::engine
