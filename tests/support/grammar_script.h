// Grammars over a small made-up vocabulary, for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/harmony_grammar.h"
#include "grammar/matcher.h"

namespace nibble::grammar {

// Ids 0..255 are single bytes, then `words`, then the control tokens: START, END, MESSAGE, CHANNEL,
// CONSTRAIN, RETURN, CALL and one that ends raw texts.
class ScriptVocabulary {
 public:
  explicit ScriptVocabulary(std::vector<std::string> words);

  std::shared_ptr<const Vocabulary> vocabulary() const { return vocabulary_; }
  std::int32_t vocab() const { return vocabulary_->trie->vocab(); }
  std::int32_t control(Symbol symbol) const;
  // Bytes of an ordinary token; "<start>" and so on for control tokens.
  std::string spelling(std::int32_t id) const;

 private:
  std::shared_ptr<const std::vector<std::string>> bytes_;
  std::shared_ptr<const Vocabulary> vocabulary_;
};

std::shared_ptr<CompiledGrammar> compile(const std::shared_ptr<const Grammar>& grammar,
                                         const ScriptVocabulary& vocabulary);

// Whether the grammar, run over bytes alone, admits `text` as a whole. Control tokens by symbol.
bool admits(const Grammar& grammar, const std::vector<Symbol>& symbols);
std::vector<Symbol> symbols_of(std::string_view text);

// Ids that a mask allows.
std::vector<std::int32_t> allowed_ids(Matcher& matcher, std::int32_t vocab);

// Draws allowed tokens until nothing may follow or `max_tokens`. A control token is taken with
// probability `eagerness` when one is allowed, so that random texts end.
std::vector<std::int32_t> random_answer(Matcher& matcher, const ScriptVocabulary& vocabulary,
                                        std::uint64_t seed, std::size_t max_tokens,
                                        double eagerness);

}  // namespace nibble::grammar
