// Which tokens a grammar admits, computed once for each state and kept.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/pushdown.h"
#include "grammar/token_trie.h"

namespace nibble::grammar {

// For one state of the grammar, alone: the tokens that its rule can read entirely, and the nodes of
// the trie at which the rule may have ended, so that what follows depends on who called it. The
// first are most of the vocabulary and the same wherever the rule runs; the second are few.
//
// Not thread-safe: one owner, or a lock outside.
class TokenMasks {
 public:
  // `trie` and `grammar` must outlive this. `max_bytes` bounds what is kept (least recently used
  // states are dropped first); a single state is kept whatever its size.
  TokenMasks(const Grammar& grammar, const TokenTrie& trie, std::size_t max_bytes);

  // Sets the bit (id % 32 of bits[id / 32]) of every ordinary token that may follow `set`, a set of
  // `pushdown`. Other bits are left alone. With n states in the set, the cost is n times vocab / 32
  // words and the walks over nodes at which rules may end; a state not kept costs one walk over the
  // trie.
  void add_tokens(const Pushdown::Set& set, Pushdown& pushdown, std::span<std::uint32_t> bits);

  // Computes the states that read most bytes, such as the inside of strings, which cost most.
  void prepare();

  std::size_t kept_bytes() const { return kept_bytes_; }
  // Walks over the whole trie so far.
  std::int64_t num_walks() const { return num_walks_; }

 private:
  struct Entry {
    std::vector<std::uint32_t> words;  // a bit for each id; empty if `ids` is shorter
    std::vector<std::int32_t> ids;     // the tokens, if they are few
    std::vector<std::uint32_t> exits;  // nodes with descendants at which the rule may have ended
    std::uint64_t key = 0;
    std::size_t bytes() const;
  };
  using Entries = std::list<Entry>;

  // What reading more in one state may give: a small lazily filled table of sets over byte classes.
  class LocalSets {
   public:
    explicit LocalSets(const Grammar& grammar) : grammar_(grammar), pushdown_(grammar) {}
    static constexpr std::uint32_t kDead = 0;
    // The set that holds `state` alone.
    std::uint32_t id_of(StateId state, std::uint32_t count);
    std::uint32_t step(std::uint32_t set, std::uint8_t byte);
    const Pushdown::Set& set(std::uint32_t id) const { return sets_[id]; }
    // Forgets everything when it has grown too much. Between walks only.
    void limit();

   private:
    struct HashSet {
      std::size_t operator()(const Pushdown::Set& set) const;
    };
    std::uint32_t intern(Pushdown::Set set);

    const Grammar& grammar_;
    Pushdown pushdown_;
    std::vector<Pushdown::Set> sets_ = {{}};
    std::vector<std::uint32_t> next_;  // [set, class]; kUnknown until asked for
    std::unordered_map<Pushdown::Set, std::uint32_t, HashSet> ids_;
  };

  // A counter as far as masks can tell.
  struct Count {
    std::uint32_t passed = 0;           // the last threshold, or 0
    std::uint32_t value = 0;            // stands for all counters with the same masks
    std::uint32_t distance = kNoLimit;  // to the next threshold, if that is near
  };
  Count classify(StateId state, std::uint32_t count) const;
  const Entry& entry_of(StateId state, std::uint32_t count);
  const Entry& keep(Entry entry);
  Entry compute(StateId state, std::uint32_t count);
  Entry derive(const Entry& base, StateId state, const Count& count);
  template <typename OnNode>
  void walk(std::uint32_t top, std::uint32_t start_set, const OnNode& on_node);
  void add_exits(std::span<const std::uint32_t> nodes, std::uint32_t caller, Pushdown& pushdown,
                 std::span<std::uint32_t> bits);

  const Grammar& grammar_;
  const TokenTrie& trie_;
  std::size_t max_bytes_;
  std::size_t kept_bytes_ = 0;
  std::int64_t num_walks_ = 0;
  LocalSets local_;
  Entries entries_;  // most recently used first
  std::unordered_map<std::uint64_t, Entries::iterator> index_;
  std::vector<std::uint32_t> path_;  // of a walk: set by depth
};

}  // namespace nibble::grammar
