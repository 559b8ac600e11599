// Runs a grammar over symbols: the set of all ways in which what was read can be understood.
#pragma once

#include <cstdint>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"

namespace nibble::grammar {

// Rules that began at one place share one record of who waits for them (a graph-structured stack),
// so ambiguous grammars cost polynomial and not exponential room. Records are kept once for each
// content, so equal situations have equal sets. One thread.
class Pushdown {
 public:
  static constexpr std::uint32_t kNobody = 0;  // the caller of the root rule

  // One way: `state` of a running rule with its counter; `caller` waits for the rule to end.
  struct Config {
    StateId state = 0;
    std::uint32_t count = 0;
    std::uint32_t caller = kNobody;
    bool operator==(const Config&) const = default;
    bool operator<(const Config& other) const {
      return std::tie(state, count, caller) < std::tie(other.state, other.count, other.caller);
    }
  };
  struct Set {
    std::vector<Config> configs;  // those that can read something; ascending
    bool is_complete = false;     // all may be over here
    bool is_dead() const { return configs.empty() && !is_complete; }
    bool operator==(const Set&) const = default;
  };

  explicit Pushdown(const Grammar& grammar) : grammar_(&grammar), callers_(1) {}

  // Before the first symbol.
  Set start();
  // Behind `symbol`; dead when no way admits it.
  Set step(const Set& set, Symbol symbol);
  // When a rule that `caller` waits for has ended.
  Set resume(std::uint32_t caller);

  std::size_t num_callers() const { return callers_.size(); }
  // Forgets every record that `set` does not need, and renames those it does.
  void compact(Set& set);

 private:
  class Closure;
  struct Return {
    StateId state;
    std::uint32_t count;
    std::uint32_t caller;
    bool operator==(const Return&) const = default;
    bool operator<(const Return& other) const {
      return std::tie(state, count, caller) < std::tie(other.state, other.count, other.caller);
    }
  };
  using Returns = std::vector<Return>;  // ascending
  struct HashReturns {
    std::size_t operator()(const Returns& returns) const;
  };

  std::uint32_t intern(Returns returns);

  const Grammar* grammar_;
  std::vector<Returns> callers_;
  std::unordered_map<Returns, std::uint32_t, HashReturns> ids_;
};

}  // namespace nibble::grammar
