// Regular languages over bytes: nondeterministic automata to build them, deterministic ones to use.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace nibble::grammar {

// An automaton under construction.
class Nfa {
 public:
  using State = std::uint32_t;
  // When an edge that reads nothing may be taken.
  enum class When : std::uint8_t {
    kAlways,
    kAtStart,  // nothing was read yet
    kAtEnd,    // nothing will be read
  };
  struct Edge {
    std::uint8_t low, high;  // inclusive
    State target;
  };
  struct Jump {
    When when;
    State target;
  };
  struct Node {
    std::vector<Edge> edges;
    std::vector<Jump> jumps;
  };

  State add_state();
  void add_edge(State from, std::uint8_t low, std::uint8_t high, State to);
  void add_jump(State from, State to, When when = When::kAlways);
  // Reads exactly `bytes` on the way.
  void add_literal(State from, std::string_view bytes, State to);
  // Whatever any state can still read, `state` can read too: sets that hold it shrink to it.
  void set_dominant(State state) { dominant_ = state; }

  const Node& node(State state) const { return nodes_[state]; }
  std::size_t num_states() const { return nodes_.size(); }
  std::optional<State> dominant() const { return dominant_; }

 private:
  std::vector<Node> nodes_;
  std::optional<State> dominant_;
};

// Deterministic and trimmed: every state can still accept. State 0 is the start; no states at all
// is the empty language.
struct Dfa {
  struct Edge {
    std::uint8_t low, high;
    std::uint32_t target;
  };
  struct Node {
    std::vector<Edge> edges;  // disjoint, ascending
    bool accepts = false;
  };
  std::vector<Node> nodes;

  bool is_empty() const { return nodes.empty(); }
  bool matches(std::string_view bytes) const;
};

// What a pattern may grow to; beyond it, compilation gives nothing.
inline constexpr std::size_t kMaxNfaStates = 1U << 16U;
inline constexpr std::size_t kMaxDfaStates = 1U << 14U;

// nullopt: more than kMaxDfaStates states, or that much work.
std::optional<Dfa> determinize(const Nfa& nfa, Nfa::State start, Nfa::State accept);

enum class Keep : std::uint8_t { kInBoth, kOnlyInFirst };
// Intersection or difference. nullopt as above.
std::optional<Dfa> combine(const Dfa& first, const Dfa& second, Keep keep);

}  // namespace nibble::grammar
