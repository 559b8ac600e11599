#include "grammar/harmony_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/grammar_script.h"
#include "text/harmony_parser.h"

namespace nibble::grammar {
namespace {

using Kind = TextFormat::Kind;

TextFormat schema(const char* text) { return {Kind::kJsonSchema, text}; }

const ScriptVocabulary& vocabulary() {
  static const ScriptVocabulary kVocabulary({"analysis", "final", "commentary", "assistant",
                                             " to=functions.", "json", " json", "{\"",
                                             "\": ", "\"}", "Hm.", "{}", "ab"});
  return kVocabulary;
}

// "<channel>final<message>{}" as symbols.
std::vector<Symbol> stream(std::string_view text) {
  std::vector<Symbol> symbols;
  while (!text.empty()) {
    bool is_control = false;
    for (int i = 0; i < 8; ++i) {
      const auto symbol = static_cast<Symbol>(kFirstControl + i);
      const std::string name = vocabulary().spelling(vocabulary().control(symbol));
      if (text.starts_with(name)) {
        symbols.push_back(symbol);
        text.remove_prefix(name.size());
        is_control = true;
        break;
      }
    }
    if (!is_control) {
      symbols.push_back(static_cast<std::uint8_t>(text[0]));
      text.remove_prefix(1);
    }
  }
  return symbols;
}

void expect(const AnswerRules& rules, const std::vector<const char*>& admitted,
            const std::vector<const char*>& refused) {
  const auto grammar = harmony_grammar(rules);
  ASSERT_TRUE(grammar.has_value()) << grammar.error().message();
  for (const char* text : admitted) {
    EXPECT_TRUE(admits(**grammar, stream(text))) << "should admit " << text;
  }
  for (const char* text : refused) {
    EXPECT_FALSE(admits(**grammar, stream(text))) << "should refuse " << text;
  }
}

TEST(HarmonyGrammar, HoldsTheAnswerAndLeavesReasoningFree) {
  expect(
      {.answer = {Kind::kJsonObject, {}}},
      {"<channel>final<message>{\"a\": 1}<return>",
       "<channel>analysis<message>No { JSON.<end><start>assistant<channel>final<message>{}<return>",
       "<channel>analysis<message><end><start>assistant<channel>analysis<message>x<end>"
       "<start>assistant<channel>final <constrain>json<message>{}<return>",
       "<channel>final<constrain>json<message>{}<return>"},
      {"<channel>final<message>No.<return>", "<channel>final<message>{}<end>",
       "<channel>final<message>{}", "<channel>final<message>{}<call>",
       "<channel>final<message>[]<return>", "{}<return>", "<message>{}<return>",
       "<channel>analysis<message>Hm.<return>", "<channel>analysis<message>Hm.",
       "<channel>commentary<message>Hi.<end><start>assistant<channel>final<message>{}<return>",
       "<channel>commentary to=functions.f<message>{}<call>",
       "<channel>final<message>{}<return><return>"});
}

TEST(HarmonyGrammar, WithoutToolsNothingIsCalled) {
  expect({}, {"<channel>final<message>Anything { at all<return>"},
         {"<channel>commentary to=functions.f<message>{}<call>",
          " to=functions.f<channel>commentary"
          "<message>{}<call>",
          "<channel>final to=functions.f<message>x<return>",
          "<channel>analysis to=python<message>x<call>"});
}

const std::vector<CallableTool>& tools() {
  static const std::vector<CallableTool> kTools = {
      {"f", {}}, {"f2", schema(R"({"type": "object", "properties": {"n": {"type": "integer"}},
                        "required": ["n"], "additionalProperties": false})")}};
  return kTools;
}

TEST(HarmonyGrammar, CallsTakeEitherHeaderAndObeyTheirSchema) {
  expect({.tools = tools()},
         {"<channel>commentary to=functions.f <constrain>json<message>{\"x\": []}<call>",
          "<channel>commentary to=functions.f<constrain>json<message>{}<call>",
          "<channel>commentary to=functions.f json<message>{}<call>",
          " to=functions.f2<channel>commentary <constrain>json<message>{\"n\": 1}<call>",
          " to=functions.f<channel>commentary<message>{}<call>",
          "<channel>commentary<message>Let me look.<end><start>assistant<channel>commentary"
          " to=functions.f<message>{}<call>",
          "<channel>commentary to=functions.f<message>{}<end><start>assistant to=functions.f2"
          "<channel>commentary<message>{\"n\": 2}<call>",
          "<channel>final<message>No call.<return>"},
         // NOLINTBEGIN(bugprone-suspicious-missing-comma): one text is longer than a line
         {"<channel>commentary to=functions.f2<message>{}<call>",
          "<channel>commentary to=functions.f<message>[]<call>",
          "<channel>commentary to=functions.g<message>{}<call>",
          "<channel>commentary to=functions.<message>{}<call>",
          "<channel>commentary to=functions.f<message>{}<return>",
          "<channel>commentary to=functions.f<message>{}<end>",
          "<channel>commentary to=functions.f<message>{}<end><start>assistant<channel>final"
          "<message>x<return>",
          " to=functions.f<channel>final<message>{}<call>", " to=functions.f<message>{}<call>"});
  // NOLINTEND(bugprone-suspicious-missing-comma)
}

TEST(HarmonyGrammar, ADemandedCallIsMadeOnce) {
  expect({.tools = {tools()[0]}, .must_call = true, .may_call_again = false},
         {"<channel>analysis<message>Hm.<end><start>assistant<channel>commentary to=functions.f"
          "<message>{}<call>"},
         {"<channel>final<message>No.<return>", "<channel>analysis<message>Hm.<end>",
          "<channel>commentary to=functions.f<message>{}<end><start>assistant<channel>commentary"
          " to=functions.f<message>{}<call>"});
}

TEST(HarmonyGrammar, NamesThePlaceOfAFault) {
  AnswerRules rules{.tools = {{"f", {}}, {"g", schema(R"({"not": {}})")}}};
  EXPECT_EQ(harmony_grammar(rules).error().message(),
            "tools[1] (g): #: keyword 'not' is not supported");
  rules = {.answer = schema(R"({"type": "x"})")};
  EXPECT_TRUE(harmony_grammar(rules).error().message().starts_with("response_format: #/type"));
  rules = {.answer = schema(R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})"),
           .tools = {{"f", {}}}};
  EXPECT_TRUE(harmony_grammar(rules).error().message().starts_with("response_format: no finite"));
  EXPECT_EQ(harmony_grammar({.must_call = true}).error().code(), Code::kInvalidArgument);
}

text::HarmonyTokens script_tokens() {
  const auto id = [](Symbol symbol) { return vocabulary().control(symbol); };
  return {.start = id(kStartSymbol),
          .end = id(kEndSymbol),
          .message = id(kMessageSymbol),
          .channel = id(kChannelSymbol),
          .constrain = id(kConstrainSymbol),
          .return_ = id(kReturnSymbol),
          .call = id(kCallSymbol)};
}

// Content and calls as the parser sees them; cut into pieces of any size it must be the same.
struct Parsed {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  int repairs = 0;
};
Parsed parse(const std::vector<std::int32_t>& ids) {
  std::string held;
  text::HarmonyParser parser(
      [&held](std::int32_t id) {
        held = vocabulary().spelling(id);
        return std::string_view(held);
      },
      script_tokens());
  std::vector<text::ParserEvent> events;
  for (const std::int32_t id : ids) {
    (void)parser.push(id, events);
  }
  parser.finish(events);
  Parsed parsed{.repairs = parser.repairs()};
  for (const text::ParserEvent& event : events) {
    const bool is_call = event.kind == text::PartKind::kToolCall;
    if (is_call && event.type == text::ParserEvent::Type::kBegin) {
      parsed.calls.emplace_back(event.recipient, "");
    } else if (is_call) {
      parsed.calls.back().second += event.text;
    } else if (event.kind == text::PartKind::kContent) {
      parsed.content += event.text;
    }
  }
  return parsed;
}

// A model of pure chance, held by the mask, answers in JSON or calls a tool as declared.
TEST(HarmonyGrammar, RandomTokensGiveValidAnswers) {
  const auto grammar = harmony_grammar(
      {.answer = schema(R"({"type": "object", "properties": {"a": {"type": "integer"},
           "s": {"type": "string", "maxLength": 8}, "l": {"type": "array", "items":
           {"enum": ["x", null]}, "maxItems": 3}}, "required": ["a", "s"],
           "additionalProperties": false})"),
       .tools = tools()});
  const auto compiled = compile(*grammar, vocabulary());
  int num_answers = 0;
  int num_calls = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Matcher matcher(compiled);
    const std::vector<std::int32_t> ids = random_answer(matcher, vocabulary(), seed, 4000, 0.3);
    ASSERT_TRUE(matcher.is_complete()) << seed;
    const Parsed parsed = parse(ids);
    EXPECT_EQ(parsed.repairs, 0) << seed;
    if (parsed.calls.empty()) {
      const auto json = nlohmann::json::parse(parsed.content, nullptr, false);
      ASSERT_TRUE(json.is_object()) << parsed.content;
      EXPECT_TRUE(json.at("a").is_number_integer() && json.at("s").is_string()) << parsed.content;
      ++num_answers;
    }
    for (const auto& [name, arguments] : parsed.calls) {
      const auto json = nlohmann::json::parse(arguments, nullptr, false);
      ASSERT_TRUE(json.is_object()) << arguments;
      EXPECT_TRUE(name == "functions.f" || name == "functions.f2") << name;
      EXPECT_TRUE(name != "functions.f2" || json.at("n").is_number_integer()) << arguments;
      ++num_calls;
    }
  }
  EXPECT_GT(num_answers, 20);
  EXPECT_GT(num_calls, 20);
}

// Wherever an answer is cut, what is there is a beginning of a valid one.
TEST(HarmonyGrammar, AnAnswerMayBeCutAnywhere) {
  const auto grammar = harmony_grammar({.answer = {Kind::kJsonObject, {}}, .tools = tools()});
  const auto compiled = compile(*grammar, vocabulary());
  Matcher whole(compiled);
  const std::vector<std::int32_t> ids = random_answer(whole, vocabulary(), 7, 4000, 0.3);
  for (std::size_t length = 0; length < ids.size(); ++length) {
    Matcher part(compiled);
    for (std::size_t i = 0; i < length; ++i) {
      ASSERT_TRUE(part.accept(ids[i]).ok());
    }
    const std::vector<std::int32_t> next = allowed_ids(part, vocabulary().vocab());
    EXPECT_TRUE(std::binary_search(next.begin(), next.end(), ids[length])) << length;
    EXPECT_FALSE(part.is_complete());
  }
}

}  // namespace
}  // namespace nibble::grammar
