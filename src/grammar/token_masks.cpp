#include "grammar/token_masks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace nibble::grammar {
namespace {

constexpr std::uint32_t kUnknown = UINT32_MAX;
constexpr std::size_t kMaxLocalSets = 1U << 14U;

void set_bit(std::span<std::uint32_t> bits, std::int32_t id) {
  const auto at = static_cast<std::uint32_t>(id);
  bits[at / 32] |= std::uint32_t{1} << (at % 32);
}
void clear_bit(std::span<std::uint32_t> bits, std::int32_t id) {
  const auto at = static_cast<std::uint32_t>(id);
  bits[at / 32] &= ~(std::uint32_t{1} << (at % 32));
}

}  // namespace

std::size_t TokenMasks::LocalSets::HashSet::operator()(const Pushdown::Set& set) const {
  std::uint64_t hash = set.is_complete ? 1 : 0;
  for (const Pushdown::Config& config : set.configs) {
    hash = (hash ^ config.state) * 0x9e3779b97f4a7c15U;
    hash = (hash ^ config.count ^ (std::uint64_t{config.caller} << 32U)) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 29U;
  }
  return hash;
}

std::uint32_t TokenMasks::LocalSets::intern(Pushdown::Set set) {
  if (set.is_dead()) {
    return kDead;
  }
  const auto [at, is_new] =
      ids_.try_emplace(std::move(set), static_cast<std::uint32_t>(sets_.size()));
  if (is_new) {
    sets_.push_back(at->first);
    next_.resize(sets_.size() * grammar_.num_byte_classes(), kUnknown);
  }
  return at->second;
}

std::uint32_t TokenMasks::LocalSets::id_of(StateId state, std::uint32_t count) {
  return intern({.configs = {{state, count, Pushdown::kNobody}}});
}

std::uint32_t TokenMasks::LocalSets::step(std::uint32_t set, std::uint8_t byte) {
  const std::size_t at = set * grammar_.num_byte_classes() + std::size_t{grammar_.byte_class(byte)};
  if (next_[at] == kUnknown) {
    // Before the assignment: interning may move `next_`.
    const std::uint32_t next = intern(pushdown_.step(sets_[set], byte));
    next_[at] = next;
  }
  return next_[at];
}

void TokenMasks::LocalSets::limit() {
  if (sets_.size() > kMaxLocalSets) {
    pushdown_ = Pushdown(grammar_);
    sets_.assign(1, {});
    next_.clear();
    ids_.clear();
  }
}

std::size_t TokenMasks::Entry::bytes() const {
  return sizeof(Entry) + 4 * (words.size() + ids.size() + exits.size());
}

TokenMasks::TokenMasks(const Grammar& grammar, const TokenTrie& trie, std::size_t max_bytes)
    : grammar_(grammar),
      trie_(trie),
      max_bytes_(max_bytes),
      local_(grammar),
      path_(TokenTrie::kMaxTokenBytes + 1) {}

// A token adds at most its length to the counter, and entering one more call behind it 1, so of a
// threshold further away than that only its side matters.
TokenMasks::Count TokenMasks::classify(StateId state, std::uint32_t count) const {
  Count out;
  for (const std::uint32_t threshold : grammar_.thresholds(grammar_.state(state).rule)) {
    if (threshold > count) {
      const std::uint32_t distance = threshold - count;
      const bool is_near = distance <= trie_.longest() + 1;
      out.value = is_near ? count : out.passed;
      out.distance = is_near ? distance : kNoLimit;
      return out;
    }
    out.passed = threshold;
  }
  out.value = out.passed;
  return out;
}

// Descends from `top`, read up to which gives `start_set`; `on_node(index, set)` for each node
// below at which the set is not dead.
template <typename OnNode>
void TokenMasks::walk(std::uint32_t top, std::uint32_t start_set, const OnNode& on_node) {
  const std::span<const TokenTrie::Node> nodes = trie_.nodes();
  path_[nodes[top].depth] = start_set;
  for (std::uint32_t i = top + 1; i < nodes[top].end;) {
    const TokenTrie::Node& node = nodes[i];
    const std::uint32_t set = local_.step(path_[node.depth - 1U], node.byte);
    if (set == LocalSets::kDead) {
      i = node.end;
      continue;
    }
    path_[node.depth] = set;
    on_node(i, set);
    ++i;
  }
}

TokenMasks::Entry TokenMasks::compute(StateId state, std::uint32_t count) {
  ++num_walks_;
  Entry entry;
  const std::span<const TokenTrie::Node> nodes = trie_.nodes();
  walk(0, local_.id_of(state, count), [&](std::uint32_t i, std::uint32_t set) {
    const std::span<const std::int32_t> tokens = trie_.tokens_at(nodes[i]);
    entry.ids.insert(entry.ids.end(), tokens.begin(), tokens.end());
    if (local_.set(set).is_complete && nodes[i].end > i + 1) {
      entry.exits.push_back(i);
    }
  });
  const auto num_words = static_cast<std::size_t>(trie_.vocab() + 31) / 32;
  if (entry.ids.size() >= num_words) {
    entry.words.resize(num_words);
    for (const std::int32_t id : entry.ids) {
      set_bit(entry.words, id);
    }
    entry.ids = {};
  }
  return entry;
}

// Near a threshold each counter has a mask of its own, but it differs from that of the last
// threshold only in tokens that reach the next one: those of at least `distance` bytes (less the
// call that may be entered behind them). Only they are tried again.
TokenMasks::Entry TokenMasks::derive(const Entry& base, StateId state, const Count& count) {
  const std::span<const TokenTrie::Node> nodes = trie_.nodes();
  const std::uint32_t depth = count.distance - 1;
  Entry entry;
  entry.words = base.words;
  entry.words.resize(static_cast<std::size_t>(trie_.vocab() + 31) / 32);
  for (const std::int32_t id : base.ids) {
    set_bit(entry.words, id);
  }
  std::copy_if(base.exits.begin(), base.exits.end(), std::back_inserter(entry.exits),
               [&](std::uint32_t i) { return nodes[i].depth < depth; });
  path_[0] = local_.id_of(state, count.value);
  for (std::uint32_t i = 1; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    if (node.deepest < depth) {
      i = node.end;
      continue;
    }
    const std::uint32_t set = local_.step(path_[node.depth - 1U], node.byte);
    path_[node.depth] = set;
    if (set == LocalSets::kDead) {
      const std::size_t end =
          node.end < nodes.size() ? nodes[node.end].first_token : trie_.tokens().size();
      for (std::size_t token = node.first_token; token < end; ++token) {
        clear_bit(entry.words, trie_.tokens()[token]);
      }
      i = node.end;
      continue;
    }
    if (node.depth >= depth) {
      for (const std::int32_t id : trie_.tokens_at(node)) {
        set_bit(entry.words, id);
      }
      if (local_.set(set).is_complete && node.end > i + 1) {
        entry.exits.push_back(i);
      }
    }
    ++i;
  }
  return entry;
}

const TokenMasks::Entry& TokenMasks::keep(Entry entry) {
  entry.ids.shrink_to_fit();
  entry.exits.shrink_to_fit();
  kept_bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  index_[entries_.front().key] = entries_.begin();
  while (kept_bytes_ > max_bytes_ && entries_.size() > 1) {
    kept_bytes_ -= entries_.back().bytes();
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
  return entries_.front();
}

const TokenMasks::Entry& TokenMasks::entry_of(StateId state, std::uint32_t count) {
  const Count known = classify(state, count);
  const std::uint64_t key = (std::uint64_t{state} << 32U) | known.value;
  if (const auto found = index_.find(key); found != index_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return entries_.front();
  }
  local_.limit();
  const bool is_near = known.distance != kNoLimit && known.value != known.passed;
  Entry entry =
      is_near ? derive(entry_of(state, known.passed), state, known) : compute(state, known.value);
  entry.key = key;
  return keep(std::move(entry));
}

void TokenMasks::prepare() {
  constexpr std::uint32_t kWide = 96;  // bytes that a state reads
  constexpr std::int64_t kMaxPrepared = 8;
  for (StateId state = 0; state < grammar_.num_states() && num_walks_ < kMaxPrepared; ++state) {
    std::uint32_t width = 0;
    for (const Edge& edge : grammar_.state(state).edges) {
      width += edge.high < kFirstControl ? edge.high - edge.low + 1U : 0U;
    }
    if (width >= kWide) {
      (void)entry_of(state, 0);
    }
  }
}

// The tokens that go on below `nodes`, at each of which a rule may have ended that `caller` waits
// for.
void TokenMasks::add_exits(std::span<const std::uint32_t> nodes, std::uint32_t caller,
                           Pushdown& pushdown, std::span<std::uint32_t> bits) {
  if (nodes.empty() || caller == Pushdown::kNobody) {
    return;
  }
  for (const Pushdown::Config& config : pushdown.resume(caller).configs) {
    const std::uint32_t start =
        local_.id_of(config.state, classify(config.state, config.count).value);
    std::vector<std::uint32_t> further;
    for (const std::uint32_t top : nodes) {
      walk(top, start, [&](std::uint32_t i, std::uint32_t set) {
        const TokenTrie::Node& node = trie_.nodes()[i];
        for (const std::int32_t id : trie_.tokens_at(node)) {
          set_bit(bits, id);
        }
        if (local_.set(set).is_complete && node.end > i + 1) {
          further.push_back(i);
        }
      });
    }
    add_exits(further, config.caller, pushdown, bits);
  }
}

void TokenMasks::add_tokens(const Pushdown::Set& set, Pushdown& pushdown,
                            std::span<std::uint32_t> bits) {
  NIBBLE_CHECK(bits.size() * 32 >= static_cast<std::size_t>(trie_.vocab()), bits.size(),
               trie_.vocab());
  for (const Pushdown::Config& config : set.configs) {
    const Entry& entry = entry_of(config.state, config.count);
    for (std::size_t i = 0; i < entry.words.size(); ++i) {
      bits[i] |= entry.words[i];
    }
    for (const std::int32_t id : entry.ids) {
      set_bit(bits, id);
    }
    add_exits(entry.exits, config.caller, pushdown, bits);
  }
}

}  // namespace nibble::grammar
