#include "grammar/byte_automaton.h"

#include <algorithm>
#include <map>
#include <utility>

namespace nibble::grammar {
namespace {

// Sum of the sizes of all sets: bounds memory and time where sets are large and many.
constexpr std::size_t kMaxSetElements = std::size_t{1} << 21U;

using StateSet = std::vector<std::uint32_t>;  // ascending

void sort_unique(StateSet& set) {
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
}

// Keeps the states from which an accepting one can be reached, in their order.
Dfa trim(const Dfa& dfa) {
  std::vector<std::vector<std::uint32_t>> sources(dfa.nodes.size());
  std::vector<std::uint32_t> work;
  std::vector<bool> is_live(dfa.nodes.size());
  for (std::uint32_t state = 0; state < dfa.nodes.size(); ++state) {
    for (const Dfa::Edge& edge : dfa.nodes[state].edges) {
      sources[edge.target].push_back(state);
    }
    if (dfa.nodes[state].accepts) {
      is_live[state] = true;
      work.push_back(state);
    }
  }
  while (!work.empty()) {
    const std::uint32_t state = work.back();
    work.pop_back();
    for (const std::uint32_t source : sources[state]) {
      if (!is_live[source]) {
        is_live[source] = true;
        work.push_back(source);
      }
    }
  }
  Dfa out;
  if (dfa.nodes.empty() || !is_live[0]) {
    return out;
  }
  std::vector<std::uint32_t> renamed(dfa.nodes.size());
  std::uint32_t count = 0;
  for (std::uint32_t state = 0; state < dfa.nodes.size(); ++state) {
    renamed[state] = count;
    count += is_live[state] ? 1 : 0;
  }
  for (std::uint32_t state = 0; state < dfa.nodes.size(); ++state) {
    if (!is_live[state]) {
      continue;
    }
    Dfa::Node node{.edges = {}, .accepts = dfa.nodes[state].accepts};
    for (const Dfa::Edge& edge : dfa.nodes[state].edges) {
      if (is_live[edge.target]) {
        node.edges.push_back({edge.low, edge.high, renamed[edge.target]});
      }
    }
    out.nodes.push_back(std::move(node));
  }
  return out;
}

class Determinizer {
 public:
  Determinizer(const Nfa& nfa, Nfa::State accept)
      : nfa_(nfa), accept_(accept), seen_(nfa.num_states()) {}

  std::optional<Dfa> run(Nfa::State start) {
    id_of(close({start}, true, false));
    out_.nodes[0].accepts = holds_accept(close({start}, true, true));
    for (std::uint32_t id = 0; id < sets_.size(); ++id) {
      if (sets_.size() > kMaxDfaStates || num_elements_ > kMaxSetElements) {
        return std::nullopt;
      }
      add_edges(id);
    }
    return trim(out_);
  }

 private:
  bool holds_accept(const StateSet& set) const {
    return std::binary_search(set.begin(), set.end(), accept_);
  }

  StateSet close(StateSet set, bool is_start, bool is_end) {
    for (const std::uint32_t state : set) {
      seen_[state] = true;
    }
    for (std::size_t i = 0; i < set.size(); ++i) {
      for (const Nfa::Jump& jump : nfa_.node(set[i]).jumps) {
        const bool is_open = jump.when == Nfa::When::kAlways ||
                             (jump.when == Nfa::When::kAtStart && is_start) ||
                             (jump.when == Nfa::When::kAtEnd && is_end);
        if (is_open && !seen_[jump.target]) {
          seen_[jump.target] = true;
          set.push_back(jump.target);
        }
      }
    }
    for (const std::uint32_t state : set) {
      seen_[state] = false;
    }
    const bool is_dominated =
        nfa_.dominant() && std::find(set.begin(), set.end(), *nfa_.dominant()) != set.end();
    if (is_dominated && !is_end) {
      set = {*nfa_.dominant()};
    }
    std::sort(set.begin(), set.end());
    return set;
  }

  std::uint32_t id_of(StateSet set) {
    const auto [at, is_new] =
        ids_.try_emplace(std::move(set), static_cast<std::uint32_t>(ids_.size()));
    if (is_new) {
      num_elements_ += at->first.size();
      sets_.push_back(&at->first);
      out_.nodes.push_back({.edges = {}, .accepts = holds_accept(close(at->first, false, true))});
    }
    return at->second;
  }

  // One edge for each interval of bytes on which the set of targets is constant.
  void add_edges(std::uint32_t id) {
    std::vector<Nfa::Edge> edges;
    std::vector<std::uint32_t> cuts;
    for (const std::uint32_t state : *sets_[id]) {
      for (const Nfa::Edge& edge : nfa_.node(state).edges) {
        edges.push_back(edge);
        cuts.push_back(edge.low);
        cuts.push_back(edge.high + 1U);
      }
    }
    sort_unique(cuts);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      StateSet targets;
      for (const Nfa::Edge& edge : edges) {
        if (edge.low <= cuts[i] && cuts[i] <= edge.high) {
          targets.push_back(edge.target);
        }
      }
      sort_unique(targets);
      if (!targets.empty()) {
        const std::uint32_t target = id_of(close(std::move(targets), false, false));
        out_.nodes[id].edges.push_back({static_cast<std::uint8_t>(cuts[i]),
                                        static_cast<std::uint8_t>(cuts[i + 1] - 1U), target});
      }
    }
  }

  const Nfa& nfa_;
  Nfa::State accept_;
  std::vector<bool> seen_;
  std::map<StateSet, std::uint32_t> ids_;
  std::vector<const StateSet*> sets_;  // by id; map keys do not move
  std::size_t num_elements_ = 0;
  Dfa out_;
};

constexpr std::uint32_t kDead = UINT32_MAX;

std::uint32_t target_of(const Dfa& dfa, std::uint32_t state, std::uint32_t byte) {
  if (state == kDead) {
    return kDead;
  }
  for (const Dfa::Edge& edge : dfa.nodes[state].edges) {
    if (edge.low <= byte && byte <= edge.high) {
      return edge.target;
    }
  }
  return kDead;
}

void add_cuts(const Dfa& dfa, std::uint32_t state, std::vector<std::uint32_t>& cuts) {
  if (state == kDead) {
    return;
  }
  for (const Dfa::Edge& edge : dfa.nodes[state].edges) {
    cuts.push_back(edge.low);
    cuts.push_back(edge.high + 1U);
  }
}

}  // namespace

Nfa::State Nfa::add_state() {
  nodes_.emplace_back();
  return static_cast<State>(nodes_.size() - 1);
}

void Nfa::add_edge(State from, std::uint8_t low, std::uint8_t high, State to) {
  nodes_[from].edges.push_back({low, high, to});
}

void Nfa::add_jump(State from, State to, When when) { nodes_[from].jumps.push_back({when, to}); }

void Nfa::add_literal(State from, std::string_view bytes, State to) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const State next = i + 1 == bytes.size() ? to : add_state();
    const auto byte = static_cast<std::uint8_t>(bytes[i]);
    add_edge(from, byte, byte, next);
    from = next;
  }
  if (bytes.empty()) {
    add_jump(from, to);
  }
}

bool Dfa::matches(std::string_view bytes) const {
  std::uint32_t state = is_empty() ? kDead : 0;
  for (const char c : bytes) {
    state = target_of(*this, state, static_cast<std::uint8_t>(c));
  }
  return state != kDead && nodes[state].accepts;
}

std::optional<Dfa> determinize(const Nfa& nfa, Nfa::State start, Nfa::State accept) {
  if (nfa.num_states() > kMaxNfaStates) {
    return std::nullopt;
  }
  return Determinizer(nfa, accept).run(start);
}

std::optional<Dfa> combine(const Dfa& first, const Dfa& second, Keep keep) {
  Dfa out;
  if (first.is_empty()) {
    return out;
  }
  using Pair = std::pair<std::uint32_t, std::uint32_t>;
  std::map<Pair, std::uint32_t> ids;
  std::vector<Pair> pairs;
  const auto id_of = [&](Pair pair) {
    const auto [at, is_new] = ids.try_emplace(pair, static_cast<std::uint32_t>(pairs.size()));
    if (is_new) {
      pairs.push_back(pair);
      const bool in_second = pair.second != kDead && second.nodes[pair.second].accepts;
      out.nodes.push_back(
          {.edges = {},
           .accepts = first.nodes[pair.first].accepts && in_second == (keep == Keep::kInBoth)});
    }
    return at->second;
  };
  id_of({0, second.is_empty() ? kDead : 0});
  for (std::uint32_t id = 0; id < pairs.size(); ++id) {
    if (pairs.size() > kMaxDfaStates) {
      return std::nullopt;
    }
    const Pair pair = pairs[id];
    std::vector<std::uint32_t> cuts;
    add_cuts(first, pair.first, cuts);
    add_cuts(second, pair.second, cuts);
    sort_unique(cuts);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const Pair target{target_of(first, pair.first, cuts[i]),
                        target_of(second, pair.second, cuts[i])};
      if (target.first == kDead || (keep == Keep::kInBoth && target.second == kDead)) {
        continue;
      }
      const std::uint32_t to = id_of(target);
      out.nodes[id].edges.push_back(
          {static_cast<std::uint8_t>(cuts[i]), static_cast<std::uint8_t>(cuts[i + 1] - 1U), to});
    }
  }
  return trim(out);
}

}  // namespace nibble::grammar
