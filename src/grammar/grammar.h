// A context-free grammar over bytes and control tokens: one small automaton for each rule, with
// calls between rules and one counter for each running rule. Immutable once built.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/byte_automaton.h"
#include "nibble/status.h"

namespace nibble::grammar {

using StateId = std::uint32_t;
using RuleId = std::uint32_t;

// A byte, or kFirstControl plus the number of a control token. What a control token is called and
// which ids it has is for the user of the grammar.
using Symbol = std::uint16_t;
inline constexpr Symbol kFirstControl = 256;

inline constexpr std::uint32_t kNoLimit = std::numeric_limits<std::uint32_t>::max();

// Open while the rule's counter is in least..most.
struct Guard {
  std::uint32_t least = 0;
  std::uint32_t most = kNoLimit;
  bool admits(std::uint32_t count) const { return least <= count && count <= most; }
};

struct Edge {
  Symbol low = 0, high = 0;  // inclusive
  StateId target = 0;
  bool counts = false;  // adds 1 to the counter
  Guard guard;
};

// Runs `rule` with a counter of 0, then goes on at `target`.
struct Call {
  RuleId rule = 0;
  StateId target = 0;
  bool counts = false;
  Guard guard;
};

struct GrammarState {
  RuleId rule = 0;
  bool accepts = false;  // the rule may end here, while `accept_guard` is open
  Guard accept_guard;
  std::vector<Edge> edges;
  std::vector<Call> calls;
};

class Grammar {
 public:
  RuleId root() const { return 0; }
  StateId start_of(RuleId rule) const { return starts_[rule]; }
  const GrammarState& state(StateId id) const { return states_[id]; }
  std::size_t num_states() const { return states_.size(); }
  std::size_t num_rules() const { return starts_.size(); }
  // Counter values at which some guard of `rule` opens or shuts, ascending.
  std::span<const std::uint32_t> thresholds(RuleId rule) const { return thresholds_[rule]; }
  // Bytes of one class take the same edges everywhere.
  std::uint8_t byte_class(std::uint8_t byte) const { return byte_classes_[byte]; }
  std::size_t num_byte_classes() const { return num_byte_classes_; }

 private:
  friend class GrammarBuilder;
  std::vector<GrammarState> states_;
  std::vector<StateId> starts_;
  std::vector<std::vector<std::uint32_t>> thresholds_;
  std::uint8_t byte_classes_[256] = {};
  std::size_t num_byte_classes_ = 0;
};

// Rule 0 is the root and exists from the beginning; every rule gets a start state with it.
class GrammarBuilder {
 public:
  static constexpr std::size_t kMaxStates = 200'000;

  GrammarBuilder() { (void)add_rule(); }

  RuleId add_rule();
  StateId start_of(RuleId rule) const { return grammar_.starts_[rule]; }
  StateId add_state(RuleId rule);
  void add_edge(StateId from, const Edge& edge);
  void add_call(StateId from, const Call& call);
  void accept(StateId state, Guard guard = {});
  // Reads exactly `bytes`, which must not be empty; returns the state behind them.
  StateId add_literal(StateId from, std::string_view bytes);
  // The same, ending in `to`.
  void add_literal(StateId from, std::string_view bytes, StateId to);
  // Makes a fresh rule read the language of `dfa`.
  void define(RuleId rule, const Dfa& dfa);
  // Makes build() fail, beginning with `place`, unless some finite text is in the language of
  // `rule`.
  void require(RuleId rule, std::string place) { required_.emplace_back(rule, std::move(place)); }
  bool is_too_large() const { return grammar_.states_.size() > kMaxStates; }

  // Drops what can never end. kInvalidArgument: more than kMaxStates states, nothing to generate
  // for the root or a required rule, or a rule that may call itself without reading anything. The
  // caller must have seen to it that no guard shuts the only way out of a state.
  Result<std::shared_ptr<const Grammar>> build() &&;

 private:
  std::vector<bool> productive_states() const;
  std::vector<bool> nullable_rules() const;
  void drop(const std::vector<bool>& is_productive);
  bool has_left_recursion() const;
  void find_thresholds();
  void find_byte_classes();

  Grammar grammar_;
  std::vector<std::pair<RuleId, std::string>> required_;
};

}  // namespace nibble::grammar
