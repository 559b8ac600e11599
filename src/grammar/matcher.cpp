#include "grammar/matcher.h"

#include <algorithm>

#include "base/error.h"

namespace nibble::grammar {
namespace {

// Records that an answer may gather before those out of use are dropped.
constexpr std::size_t kMaxCallers = 1U << 14U;

}  // namespace

CompiledGrammar::CompiledGrammar(std::shared_ptr<const Grammar> grammar,
                                 std::shared_ptr<const Vocabulary> vocabulary,
                                 std::size_t max_mask_bytes)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      masks_(*grammar_, *vocabulary_->trie, max_mask_bytes) {
  masks_.prepare();
}

void CompiledGrammar::add_tokens(const Pushdown::Set& set, Pushdown& pushdown,
                                 std::span<std::uint32_t> bits) {
  const std::lock_guard lock(mutex_);
  masks_.add_tokens(set, pushdown, bits);
}

Matcher::Matcher(std::shared_ptr<CompiledGrammar> compiled)
    : compiled_(std::move(compiled)), pushdown_(compiled_->grammar()), set_(pushdown_.start()) {}

void Matcher::mask(std::span<std::uint32_t> bits) {
  std::fill(bits.begin(), bits.end(), 0U);
  compiled_->add_tokens(set_, pushdown_, bits);
  for (const auto& [id, symbol] : compiled_->vocabulary().controls) {
    if (!pushdown_.step(set_, symbol).is_dead()) {
      bits[static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << (id % 32);
    }
  }
}

Pushdown::Set Matcher::after(std::int32_t token) {
  const Vocabulary& vocabulary = compiled_->vocabulary();
  const auto control = std::find_if(vocabulary.controls.begin(), vocabulary.controls.end(),
                                    [token](const auto& entry) { return entry.first == token; });
  if (control != vocabulary.controls.end()) {
    return pushdown_.step(set_, control->second);
  }
  const std::string_view bytes = vocabulary.trie->bytes(token);
  if (bytes.empty()) {
    return {};
  }
  Pushdown::Set set = set_;
  for (const char c : bytes) {
    set = pushdown_.step(set, static_cast<std::uint8_t>(c));
  }
  return set;
}

Status Matcher::accept(std::int32_t token) {
  Pushdown::Set next = after(token);
  if (next.is_dead()) {
    return error(Code::kInternal, "constrained output: token {} cannot follow ({} ways were open)",
                 token, set_.configs.size());
  }
  set_ = std::move(next);
  if (pushdown_.num_callers() > kMaxCallers) {
    pushdown_.compact(set_);
  }
  return {};
}

}  // namespace nibble::grammar
