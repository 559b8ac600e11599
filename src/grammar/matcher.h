// Follows one answer through a grammar, token by token.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/pushdown.h"
#include "grammar/token_masks.h"
#include "grammar/token_trie.h"
#include "nibble/status.h"

namespace nibble::grammar {

// A vocabulary as grammars see it. Immutable.
struct Vocabulary {
  std::shared_ptr<const TokenTrie> trie;
  // Ids of the control tokens and the symbol that each stands for; several ids may share one.
  std::vector<std::pair<std::int32_t, Symbol>> controls;
};

// A grammar ready for use with one vocabulary, shared by all answers under it. Thread-safe.
class CompiledGrammar {
 public:
  // Computes the masks of the widest states at once, so that the first answer does not wait for
  // them.
  CompiledGrammar(std::shared_ptr<const Grammar> grammar,
                  std::shared_ptr<const Vocabulary> vocabulary, std::size_t max_mask_bytes);

  const Grammar& grammar() const { return *grammar_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  void add_tokens(const Pushdown::Set& set, Pushdown& pushdown, std::span<std::uint32_t> bits);

 private:
  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::mutex mutex_;
  TokenMasks masks_;  // under `mutex_`
};

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<CompiledGrammar> compiled);

  // Overwrites `bits` [vocab / 32, rounded up]: bit id % 32 of bits[id / 32] says whether `id` may
  // come next.
  void mask(std::span<std::uint32_t> bits);
  // kInternal, naming the token, when it was not allowed; then nothing has changed.
  Status accept(std::int32_t token);
  bool is_complete() const { return set_.is_complete; }

 private:
  Pushdown::Set after(std::int32_t token);

  std::shared_ptr<CompiledGrammar> compiled_;
  Pushdown pushdown_;
  Pushdown::Set set_;
};

}  // namespace nibble::grammar
