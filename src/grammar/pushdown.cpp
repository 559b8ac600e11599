#include "grammar/pushdown.h"

#include <algorithm>
#include <utility>

namespace nibble::grammar {

// What can be reached without reading. Rules called here are new records: at most one for each
// rule, numbered kFirstNew + i until all who wait for them are known.
class Pushdown::Closure {
 public:
  explicit Closure(Pushdown& owner) : owner_(owner) {}

  void add(const Config& config) {
    if (std::find(seen_.begin(), seen_.end(), config) == seen_.end()) {
      seen_.push_back(config);
    }
  }

  Set finish() {
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      const Config config = seen_[i];  // a copy: `seen_` grows
      const GrammarState& state = owner_.grammar_->state(config.state);
      if (state.accepts && state.accept_guard.admits(config.count)) {
        end(config.caller);
      }
      for (const Call& call : state.calls) {
        if (call.guard.admits(config.count)) {
          enter(call.rule, {call.target, config.count + (call.counts ? 1 : 0), config.caller});
        }
      }
    }
    for (const Config& config : seen_) {
      if (!owner_.grammar_->state(config.state).edges.empty()) {
        set_.configs.push_back({config.state, config.count, final_id(config.caller)});
      }
    }
    std::sort(set_.configs.begin(), set_.configs.end());
    const auto last = std::unique(set_.configs.begin(), set_.configs.end());
    set_.configs.erase(last, set_.configs.end());
    return std::move(set_);
  }

 private:
  static constexpr std::uint32_t kFirstNew = std::uint32_t{1} << 31U;
  struct NewCaller {
    RuleId rule;
    Returns returns;
    bool has_ended = false;  // without reading anything
    std::uint32_t id = 0;    // once interned
  };

  void resume(const Return& back) { add({back.state, back.count, back.caller}); }

  void end(std::uint32_t caller) {
    if (caller == kNobody) {
      set_.is_complete = true;
      return;
    }
    if (caller >= kFirstNew) {
      new_[caller - kFirstNew].has_ended = true;
    }
    const Returns& returns =
        caller >= kFirstNew ? new_[caller - kFirstNew].returns : owner_.callers_[caller];
    for (const Return& back : returns) {
      resume(back);
    }
  }

  void enter(RuleId rule, const Return& back) {
    auto at = std::find_if(new_.begin(), new_.end(),
                           [rule](const NewCaller& caller) { return caller.rule == rule; });
    if (at == new_.end()) {
      new_.push_back({.rule = rule, .returns = {}});
      at = new_.end() - 1;
      add({owner_.grammar_->start_of(rule), 0,
           kFirstNew + static_cast<std::uint32_t>(new_.size() - 1)});
    }
    if (std::find(at->returns.begin(), at->returns.end(), back) == at->returns.end()) {
      at->returns.push_back(back);
      if (at->has_ended) {
        resume(back);
      }
    }
  }

  // Who waits for a new rule may itself be new, but never in a circle: no rule calls itself without
  // reading. So this ends, as deep as there are rules called at one place.
  std::uint32_t final_id(std::uint32_t caller) {
    if (caller < kFirstNew) {
      return caller;
    }
    NewCaller& found = new_[caller - kFirstNew];
    if (found.id == 0) {
      for (Return& back : found.returns) {
        back.caller = final_id(back.caller);
      }
      std::sort(found.returns.begin(), found.returns.end());
      found.returns.erase(std::unique(found.returns.begin(), found.returns.end()),
                          found.returns.end());
      found.id = owner_.intern(std::move(found.returns));
    }
    return found.id;
  }

  Pushdown& owner_;
  Set set_;
  std::vector<Config> seen_;
  std::vector<NewCaller> new_;
};

std::size_t Pushdown::HashReturns::operator()(const Returns& returns) const {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 29U;
  };
  for (const Return& back : returns) {
    mix((std::uint64_t{back.state} << 32U) | back.count);
    mix(back.caller);
  }
  return hash;
}

std::uint32_t Pushdown::intern(Returns returns) {
  const auto [at, is_new] =
      ids_.try_emplace(std::move(returns), static_cast<std::uint32_t>(callers_.size()));
  if (is_new) {
    callers_.push_back(at->first);
  }
  return at->second;
}

Pushdown::Set Pushdown::start() {
  Closure closure(*this);
  closure.add({grammar_->start_of(grammar_->root()), 0, kNobody});
  return closure.finish();
}

Pushdown::Set Pushdown::step(const Set& set, Symbol symbol) {
  Closure closure(*this);
  for (const Config& config : set.configs) {
    for (const Edge& edge : grammar_->state(config.state).edges) {
      if (edge.low <= symbol && symbol <= edge.high && edge.guard.admits(config.count)) {
        closure.add({edge.target, config.count + (edge.counts ? 1 : 0), config.caller});
      }
    }
  }
  return closure.finish();
}

Pushdown::Set Pushdown::resume(std::uint32_t caller) {
  Closure closure(*this);
  for (const Return& back : callers_[caller]) {
    closure.add({back.state, back.count, back.caller});
  }
  Set set = closure.finish();
  set.is_complete = set.is_complete || caller == kNobody;
  return set;
}

void Pushdown::compact(Set& set) {
  Pushdown fresh(*grammar_);
  std::vector<std::uint32_t> renamed(callers_.size(), kNobody);
  // A record names only older ones, so ascending order meets callers first.
  std::vector<bool> is_needed(callers_.size());
  for (const Config& config : set.configs) {
    is_needed[config.caller] = true;
  }
  for (std::size_t id = callers_.size(); id-- > 1;) {
    for (const Return& back : callers_[id]) {
      is_needed[back.caller] = is_needed[back.caller] || is_needed[id];
    }
  }
  for (std::size_t id = 1; id < callers_.size(); ++id) {
    if (is_needed[id]) {
      Returns returns = std::move(callers_[id]);
      for (Return& back : returns) {
        back.caller = renamed[back.caller];
      }
      std::sort(returns.begin(), returns.end());
      renamed[id] = fresh.intern(std::move(returns));
    }
  }
  for (Config& config : set.configs) {
    config.caller = renamed[config.caller];
  }
  std::sort(set.configs.begin(), set.configs.end());
  callers_ = std::move(fresh.callers_);
  ids_ = std::move(fresh.ids_);
}

}  // namespace nibble::grammar
