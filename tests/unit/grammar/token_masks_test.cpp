#include "grammar/token_masks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/grammar_script.h"

namespace nibble::grammar {
namespace {

using Ids = std::vector<std::int32_t>;

const ScriptVocabulary& vocabulary() {
  static const ScriptVocabulary kVocabulary({"{\"",       "\":",
                                             "\": ",      "\",\"",
                                             "\"}",       "},{",
                                             "}]}",       "]}",
                                             "[{",        "ab",
                                             "abc",       "a\",",
                                             "null",      "tru",
                                             "true",      "12",
                                             "12,",       "1.5",
                                             "\n  ",      "  ",
                                             "name",      "analysis",
                                             "final",     "commentary",
                                             "assistant", " to=functions.",
                                             "json",      "\\u00",
                                             "\\n",       "\xC3\xA9",
                                             "\xE2\x82",  "\",\n",
                                             "\"]",       "\": [",
                                             "-1",        "e5",
                                             "}}",        "\"a\":",
                                             "{}",        "[]",
                                             "]],["});
  return kVocabulary;
}

// What the automaton over bytes admits, token by token.
Ids allowed_by_bytes(const Grammar& grammar, const std::vector<Symbol>& read) {
  Pushdown pushdown(grammar);
  Pushdown::Set begin = pushdown.start();
  for (const Symbol symbol : read) {
    begin = pushdown.step(begin, symbol);
  }
  Ids ids;
  for (std::int32_t id = 0; id < vocabulary().vocab(); ++id) {
    Pushdown::Set set = begin;
    const bool is_control = id >= vocabulary().control(kFirstControl);
    const std::vector<Symbol> symbols =
        is_control ? std::vector<Symbol>{static_cast<Symbol>(kFirstControl + id -
                                                             vocabulary().control(kFirstControl))}
                   : symbols_of(vocabulary().spelling(id));
    for (const Symbol symbol : symbols) {
      set = pushdown.step(set, symbol);
    }
    if (!set.is_dead()) {
      ids.push_back(id);
    }
  }
  return ids;
}

std::vector<std::shared_ptr<const Grammar>> grammars() {
  std::vector<std::shared_ptr<const Grammar>> out;
  const auto add = [&](const AnswerRules& rules) {
    auto grammar = harmony_grammar(rules);
    EXPECT_TRUE(grammar.has_value()) << grammar.error().message();
    out.push_back(*grammar);
  };
  const auto schema = [](std::string text) {
    return TextFormat{TextFormat::Kind::kJsonSchema, std::move(text)};
  };
  add({.answer = {TextFormat::Kind::kJsonObject, {}}});
  add({.answer = schema(R"({"type": "array", "minItems": 2, "maxItems": 5, "items":
        {"type": "string", "minLength": 1, "maxLength": 4}})")});
  add({.answer = schema(R"({"type": "string", "minLength": 5, "maxLength": 24})")});
  add({.answer = schema(R"({"$defs": {"n": {"type": "object", "properties":
        {"a": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}, {"type": "integer"}]},
         "name": {"type": "string", "pattern": "^[a-c]{2,}$"}}, "required": ["a"]}},
        "anyOf": [{"$ref": "#/$defs/n"}, {"type": "array", "items": {"$ref": "#/$defs/n"}}]})")});
  add({.answer = schema(R"({"type": "number", "minimum": -1, "maximum": 12.5})"),
       .tools = {{"f", {}}, {"fab", schema(R"({"type": "object", "properties": {"a": {"enum":
        ["ab", "abc", null, 12]}}, "required": ["a"], "additionalProperties": false})")}}});
  add({.tools = {{"ab", {TextFormat::Kind::kJsonObject, {}}}}, .must_call = true});
  return out;
}

// The claim on which everything rests: at each place of many answers, a token is allowed exactly if
// reading its bytes one by one finds a way.
TEST(TokenMasks, AllowATokenExactlyIfItsBytesAreAdmitted) {
  for (const std::size_t max_bytes : {std::size_t{1} << 22U, std::size_t{1}}) {
    std::size_t number = 0;
    for (const auto& grammar : grammars()) {
      const auto compiled =
          std::make_shared<CompiledGrammar>(grammar, vocabulary().vocabulary(), max_bytes);
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        Matcher matcher(compiled);
        std::vector<Symbol> read;
        std::uint64_t draw = seed * 1000 + number + 1;
        for (int step = 0; step < 40; ++step) {
          const Ids ids = allowed_ids(matcher, vocabulary().vocab());
          ASSERT_EQ(ids, allowed_by_bytes(*grammar, read))
              << "grammar " << number << " step " << step;
          if (ids.empty()) {
            break;
          }
          draw = draw * 6364136223846793005U + 1442695040888963407U;
          const std::int32_t id = ids[(draw >> 33U) % ids.size()];
          ASSERT_TRUE(matcher.accept(id).ok());
          const std::int32_t first = vocabulary().control(kFirstControl);
          const std::vector<Symbol> symbols =
              id >= first ? std::vector<Symbol>{static_cast<Symbol>(kFirstControl + id - first)}
                          : symbols_of(vocabulary().spelling(id));
          read.insert(read.end(), symbols.begin(), symbols.end());
        }
      }
      ++number;
    }
  }
}

TEST(TokenMasks, AStateIsComputedOnceAndTheOldestAreDropped) {
  const auto grammar = text_grammar({TextFormat::Kind::kJsonObject, {}}).value();
  const TokenTrie& trie = *vocabulary().vocabulary()->trie;
  TokenMasks roomy(*grammar, trie, std::size_t{1} << 22U);
  TokenMasks tight(*grammar, trie, 1);
  Pushdown pushdown(*grammar);
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(trie.vocab() + 31) / 32);
  for (int round = 0; round < 3; ++round) {
    Pushdown::Set set = pushdown.start();
    for (const Symbol symbol : symbols_of("{\"ab\": \"ab\"")) {
      set = pushdown.step(set, symbol);
      roomy.add_tokens(set, pushdown, bits);
      tight.add_tokens(set, pushdown, bits);
    }
  }
  EXPECT_LE(roomy.num_walks(), 20);
  EXPECT_GT(tight.num_walks(), roomy.num_walks());
  EXPECT_LT(tight.kept_bytes(), roomy.kept_bytes());
}

TEST(TokenMasks, CountersFarFromALimitShareAState) {
  const auto grammar =
      text_grammar({TextFormat::Kind::kJsonSchema, R"({"type": "string", "maxLength": 100000})"})
          .value();
  const TokenTrie& trie = *vocabulary().vocabulary()->trie;
  TokenMasks masks(*grammar, trie, std::size_t{1} << 22U);
  Pushdown pushdown(*grammar);
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(trie.vocab() + 31) / 32);
  Pushdown::Set set = pushdown.step(pushdown.start(), '"');
  for (int i = 0; i < 1000; ++i) {
    set = pushdown.step(set, 'a');
    masks.add_tokens(set, pushdown, bits);
  }
  EXPECT_EQ(masks.num_walks(), 1);
}

TEST(TokenTrie, WantsEveryByte) {
  const auto no_z = [](std::int32_t id) {
    static const std::string kAll = [] {
      std::string all;
      for (int byte = 0; byte < 256; ++byte) {
        all += static_cast<char>(byte);
      }
      return all;
    }();
    return id == 'z' ? std::string_view()
                     : std::string_view(kAll).substr(static_cast<std::size_t>(id), 1);
  };
  const Result<TokenTrie> trie = TokenTrie::create(256, no_z);
  ASSERT_FALSE(trie.has_value());
  EXPECT_NE(trie.error().message().find("0x7a"), std::string::npos);
}

TEST(Matcher, RefusesWhatWasNotAllowedAndStaysWhereItWas) {
  const auto grammar = text_grammar({TextFormat::Kind::kJsonObject, {}}).value();
  Matcher matcher(compile(grammar, vocabulary()));
  for (const std::int32_t id : {std::int32_t{'x'}, -1, 100000, vocabulary().control(kStopSymbol)}) {
    EXPECT_EQ(matcher.accept(id).code(), Code::kInternal) << id;
  }
  EXPECT_TRUE(matcher.accept('{').ok());
  EXPECT_TRUE(matcher.accept('}').ok());
  EXPECT_EQ(allowed_ids(matcher, vocabulary().vocab()), Ids{vocabulary().control(kStopSymbol)});
}

}  // namespace
}  // namespace nibble::grammar
