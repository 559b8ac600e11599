// Masks that hold an answer to its response format and tool choice.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/token_mask.h"
#include "grammar/harmony_grammar.h"
#include "grammar/matcher.h"
#include "nibble/request.h"
#include "nibble/status.h"
#include "text/tokenizer.h"

namespace nibble {

struct ConstraintRules {
  bool is_chat = true;  // otherwise `answer.answer` is the whole text
  grammar::AnswerRules answer;
};

// nullopt: the request leaves the model free. kInvalidArgument: a choice of a tool that is not
// there, or a tool to be called whose name the chat format cannot carry.
Result<std::optional<ConstraintRules>> constraint_rules(const Request& request);

struct Constraint {
  std::shared_ptr<engine::TokenMask> mask;
  std::vector<std::int32_t> end_ids;  // those with which such an answer ends
};

// Compiled grammars of one model, the last used ones kept. Thread-safe; compiling takes
// milliseconds and is done in the caller's thread.
class Constraints {
 public:
  static constexpr std::size_t kMaxGrammars = 16;
  static constexpr std::size_t kMaxMaskBytes = std::size_t{8} << 20U;  // of each

  // A fresh mask, for one answer. `tokenizer` and `eos_ids` are those of the model.
  // kInvalidArgument: a schema that cannot be held; kUnsupported: a vocabulary without the control
  // tokens or without a token for some byte.
  Result<Constraint> get(const ConstraintRules& rules, const text::Tokenizer& tokenizer,
                         const std::vector<std::int32_t>& eos_ids);

 private:
  using Compiled = std::shared_ptr<grammar::CompiledGrammar>;
  Result<std::shared_ptr<const grammar::TokenTrie>> trie_of(const text::Tokenizer& tokenizer);
  Result<Compiled> compile(const ConstraintRules& rules, const text::Tokenizer& tokenizer,
                           const std::vector<std::int32_t>& eos_ids);
  Compiled find(const std::string& key);
  void keep(const std::string& key, const Compiled& compiled);

  std::mutex mutex_;
  std::shared_ptr<const grammar::TokenTrie> trie_;    // made when first needed
  std::list<std::pair<std::string, Compiled>> kept_;  // most recently used first
};

}  // namespace nibble
