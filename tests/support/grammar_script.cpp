#include "support/grammar_script.h"

#include <cstdlib>

namespace nibble::grammar {
namespace {

constexpr const char* kNames[] = {"<start>",     "<end>",    "<message>", "<channel>",
                                  "<constrain>", "<return>", "<call>",    "<stop>"};

}  // namespace

ScriptVocabulary::ScriptVocabulary(std::vector<std::string> words) {
  std::vector<std::string> bytes;
  bytes.reserve(256 + words.size());
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  bytes.insert(bytes.end(), words.begin(), words.end());
  bytes_ = std::make_shared<const std::vector<std::string>>(std::move(bytes));
  const TokenTrie::TokenBytes token_bytes = [bytes = bytes_](std::int32_t id) -> std::string_view {
    const auto at = static_cast<std::size_t>(id);
    return at < bytes->size() ? std::string_view((*bytes)[at]) : std::string_view();
  };
  const auto first = static_cast<std::int32_t>(bytes_->size());
  Result<TokenTrie> trie = TokenTrie::create(first + 8, token_bytes);
  auto vocabulary = std::make_shared<Vocabulary>(
      Vocabulary{.trie = std::make_shared<const TokenTrie>(std::move(*trie)), .controls = {}});
  for (std::int32_t i = 0; i < 8; ++i) {
    vocabulary->controls.emplace_back(first + i, static_cast<Symbol>(kFirstControl + i));
  }
  vocabulary_ = std::move(vocabulary);
}

std::int32_t ScriptVocabulary::control(Symbol symbol) const {
  return static_cast<std::int32_t>(bytes_->size()) + symbol - kFirstControl;
}

std::string ScriptVocabulary::spelling(std::int32_t id) const {
  const auto at = static_cast<std::size_t>(id);
  return at < bytes_->size() ? (*bytes_)[at] : kNames[at - bytes_->size()];
}

std::shared_ptr<CompiledGrammar> compile(const std::shared_ptr<const Grammar>& grammar,
                                         const ScriptVocabulary& vocabulary) {
  return std::make_shared<CompiledGrammar>(grammar, vocabulary.vocabulary(), std::size_t{1} << 22U);
}

std::vector<Symbol> symbols_of(std::string_view text) {
  std::vector<Symbol> symbols;
  for (const char c : text) {
    symbols.push_back(static_cast<std::uint8_t>(c));
  }
  return symbols;
}

bool admits(const Grammar& grammar, const std::vector<Symbol>& symbols) {
  Pushdown pushdown(grammar);
  Pushdown::Set set = pushdown.start();
  for (const Symbol symbol : symbols) {
    set = pushdown.step(set, symbol);
  }
  return set.is_complete;
}

std::vector<std::int32_t> allowed_ids(Matcher& matcher, std::int32_t vocab) {
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(vocab + 31) / 32, 0xFFFFFFFFU);
  matcher.mask(bits);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < vocab; ++id) {
    if ((bits[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0) {
      ids.push_back(id);
    }
  }
  return ids;
}

std::vector<std::int32_t> random_answer(Matcher& matcher, const ScriptVocabulary& vocabulary,
                                        std::uint64_t seed, std::size_t max_tokens,
                                        double eagerness) {
  std::mt19937_64 rng(seed);
  const std::int32_t first_control = vocabulary.control(kFirstControl);
  std::vector<std::int32_t> answer;
  while (answer.size() < max_tokens) {
    std::vector<std::int32_t> ids = allowed_ids(matcher, vocabulary.vocab());
    if (ids.empty()) {
      break;
    }
    std::vector<std::int32_t> controls;
    for (const std::int32_t id : ids) {
      if (id >= first_control) {
        controls.push_back(id);
      }
    }
    const bool is_eager = std::uniform_real_distribution<double>()(rng) < eagerness;
    const std::vector<std::int32_t>& from = is_eager && !controls.empty() ? controls : ids;
    answer.push_back(from[rng() % from.size()]);
    if (!matcher.accept(answer.back()).ok()) {
      std::abort();  // what a mask allows is accepted
    }
  }
  return answer;
}

}  // namespace nibble::grammar
