#include "grammar/grammar.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace nibble::grammar {

RuleId GrammarBuilder::add_rule() {
  const auto rule = static_cast<RuleId>(grammar_.starts_.size());
  grammar_.starts_.push_back(0);
  grammar_.starts_[rule] = add_state(rule);
  return rule;
}

StateId GrammarBuilder::add_state(RuleId rule) {
  grammar_.states_.push_back({.rule = rule, .accept_guard = {}, .edges = {}, .calls = {}});
  return static_cast<StateId>(grammar_.states_.size() - 1);
}

void GrammarBuilder::add_edge(StateId from, const Edge& edge) {
  grammar_.states_[from].edges.push_back(edge);
}

void GrammarBuilder::add_call(StateId from, const Call& call) {
  grammar_.states_[from].calls.push_back(call);
}

void GrammarBuilder::accept(StateId state, Guard guard) {
  grammar_.states_[state].accepts = true;
  grammar_.states_[state].accept_guard = guard;
}

StateId GrammarBuilder::add_literal(StateId from, std::string_view bytes) {
  const StateId to = add_state(grammar_.states_[from].rule);
  add_literal(from, bytes, to);
  return to;
}

void GrammarBuilder::add_literal(StateId from, std::string_view bytes, StateId to) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const StateId next = i + 1 == bytes.size() ? to : add_state(grammar_.states_[from].rule);
    const auto symbol = static_cast<Symbol>(static_cast<std::uint8_t>(bytes[i]));
    add_edge(from, {.low = symbol, .high = symbol, .target = next, .guard = {}});
    from = next;
  }
}

void GrammarBuilder::define(RuleId rule, const Dfa& dfa) {
  std::vector<StateId> ids(dfa.nodes.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = i == 0 ? start_of(rule) : add_state(rule);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (const Dfa::Edge& edge : dfa.nodes[i].edges) {
      add_edge(ids[i],
               {.low = edge.low, .high = edge.high, .target = ids[edge.target], .guard = {}});
    }
    if (dfa.nodes[i].accepts) {
      accept(ids[i]);
    }
  }
}

// Least fixed point: a state is productive when it accepts or leads to a productive one; a call
// leads on only if its rule can end.
std::vector<bool> GrammarBuilder::productive_states() const {
  const std::vector<GrammarState>& states = grammar_.states_;
  std::vector<bool> is_productive(states.size());
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    // Backwards: targets mostly come after their sources.
    for (std::size_t i = states.size(); i-- > 0;) {
      if (is_productive[i]) {
        continue;
      }
      const GrammarState& state = states[i];
      const bool found =
          state.accepts ||
          std::any_of(state.edges.begin(), state.edges.end(),
                      [&](const Edge& edge) { return is_productive[edge.target]; }) ||
          std::any_of(state.calls.begin(), state.calls.end(), [&](const Call& call) {
            return is_productive[start_of(call.rule)] && is_productive[call.target];
          });
      is_productive[i] = found;
      has_changed = has_changed || found;
    }
  }
  return is_productive;
}

void GrammarBuilder::drop(const std::vector<bool>& is_productive) {
  for (GrammarState& state : grammar_.states_) {
    std::erase_if(state.edges, [&](const Edge& edge) { return !is_productive[edge.target]; });
    std::erase_if(state.calls, [&](const Call& call) {
      return !is_productive[start_of(call.rule)] || !is_productive[call.target];
    });
  }
}

std::vector<bool> GrammarBuilder::nullable_rules() const {
  const std::vector<GrammarState>& states = grammar_.states_;
  std::vector<bool> can_end(states.size());  // the state's rule can end from it, reading nothing
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (std::size_t i = states.size(); i-- > 0;) {
      const bool found =
          states[i].accepts ||
          std::any_of(states[i].calls.begin(), states[i].calls.end(), [&](const Call& call) {
            return can_end[start_of(call.rule)] && can_end[call.target];
          });
      has_changed = has_changed || (found && !can_end[i]);
      can_end[i] = found;
    }
  }
  std::vector<bool> is_nullable(grammar_.starts_.size());
  for (RuleId rule = 0; rule < is_nullable.size(); ++rule) {
    is_nullable[rule] = can_end[start_of(rule)];
  }
  return is_nullable;
}

// A cycle among states that reads nothing: into the start of a called rule, or past a rule that may
// be empty. Iterative: schemas nest as deep as they like.
bool GrammarBuilder::has_left_recursion() const {
  const std::vector<bool> is_nullable = nullable_rules();
  std::vector<std::vector<StateId>> next(grammar_.states_.size());
  std::vector<std::uint32_t> num_sources(grammar_.states_.size());
  for (StateId id = 0; id < next.size(); ++id) {
    for (const Call& call : grammar_.states_[id].calls) {
      next[id].push_back(start_of(call.rule));
      if (is_nullable[call.rule]) {
        next[id].push_back(call.target);
      }
    }
    for (const StateId target : next[id]) {
      ++num_sources[target];
    }
  }
  std::vector<StateId> work;
  for (StateId id = 0; id < next.size(); ++id) {
    if (num_sources[id] == 0) {
      work.push_back(id);
    }
  }
  std::size_t num_sorted = 0;
  while (!work.empty()) {
    const StateId id = work.back();
    work.pop_back();
    ++num_sorted;
    for (const StateId target : next[id]) {
      if (--num_sources[target] == 0) {
        work.push_back(target);
      }
    }
  }
  return num_sorted != next.size();
}

void GrammarBuilder::find_thresholds() {
  grammar_.thresholds_.resize(grammar_.starts_.size());
  for (const GrammarState& state : grammar_.states_) {
    std::vector<std::uint32_t>& thresholds = grammar_.thresholds_[state.rule];
    const auto add = [&](const Guard& guard) {
      if (guard.least > 0) {
        thresholds.push_back(guard.least);
      }
      if (guard.most < kNoLimit) {
        thresholds.push_back(guard.most + 1);
      }
    };
    add(state.accept_guard);
    for (const Edge& edge : state.edges) {
      add(edge.guard);
    }
    for (const Call& call : state.calls) {
      add(call.guard);
    }
  }
  for (std::vector<std::uint32_t>& thresholds : grammar_.thresholds_) {
    std::sort(thresholds.begin(), thresholds.end());
    thresholds.erase(std::unique(thresholds.begin(), thresholds.end()), thresholds.end());
  }
}

void GrammarBuilder::find_byte_classes() {
  bool begins_class[257] = {true};
  for (const GrammarState& state : grammar_.states_) {
    for (const Edge& edge : state.edges) {
      if (edge.low < kFirstControl) {
        begins_class[edge.low] = true;
        begins_class[edge.high + 1] = true;
      }
    }
  }
  std::size_t number = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    number += begins_class[byte] ? 1 : 0;
    grammar_.byte_classes_[byte] = static_cast<std::uint8_t>(number - 1);
  }
  grammar_.num_byte_classes_ = number;
}

Result<std::shared_ptr<const Grammar>> GrammarBuilder::build() && {
  if (is_too_large()) {
    return error(Code::kInvalidArgument, "too large: want at most {} states, found {}", kMaxStates,
                 grammar_.states_.size());
  }
  const std::vector<bool> is_productive = productive_states();
  required_.emplace_back(grammar_.root(), "grammar");
  for (const auto& [rule, place] : required_) {
    if (!is_productive[start_of(rule)]) {
      return error(Code::kInvalidArgument, "{}: no finite text can satisfy it", place);
    }
  }
  drop(is_productive);
  if (has_left_recursion()) {
    return error(Code::kInvalidArgument,
                 "a $ref leads to itself without a value in between ({} rules)",
                 grammar_.starts_.size());
  }
  find_thresholds();
  find_byte_classes();
  return std::shared_ptr<const Grammar>(std::make_shared<Grammar>(std::move(grammar_)));
}

}  // namespace nibble::grammar
