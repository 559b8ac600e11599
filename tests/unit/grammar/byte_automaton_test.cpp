#include "grammar/byte_automaton.h"

#include <gtest/gtest.h>

#include <string>

#include "grammar/json_text.h"

namespace nibble::grammar {
namespace {

Dfa texts(const std::vector<std::string>& list) { return any_of(list).value(); }

TEST(ByteAutomaton, ReadsExactlyTheTextsItWasBuiltFrom) {
  const Dfa dfa = texts({"ab", "abc", "x"});
  for (const char* text : {"ab", "abc", "x"}) {
    EXPECT_TRUE(dfa.matches(text)) << text;
  }
  for (const char* text : {"", "a", "abcd", "xx", "b"}) {
    EXPECT_FALSE(dfa.matches(text)) << text;
  }
}

TEST(ByteAutomaton, CombinesLanguages) {
  const Dfa first = texts({"a", "ab", "b"});
  const Dfa second = texts({"ab", "c", "b"});
  const Dfa both = combine(first, second, Keep::kInBoth).value();
  const Dfa only = combine(first, second, Keep::kOnlyInFirst).value();
  for (const char* text : {"a", "ab", "b", "c", ""}) {
    EXPECT_EQ(both.matches(text), first.matches(text) && second.matches(text)) << text;
    EXPECT_EQ(only.matches(text), first.matches(text) && !second.matches(text)) << text;
  }
}

TEST(ByteAutomaton, KeepsNoStateThatCannotEnd) {
  Nfa nfa;
  const Nfa::State start = nfa.add_state();
  const Nfa::State accept = nfa.add_state();
  const Nfa::State trap = nfa.add_state();
  nfa.add_edge(start, 'a', 'a', accept);
  nfa.add_edge(start, 'b', 'b', trap);
  nfa.add_edge(trap, 'b', 'b', trap);
  const Dfa dfa = determinize(nfa, start, accept).value();
  ASSERT_EQ(dfa.nodes.size(), 2U);
  EXPECT_EQ(dfa.nodes[0].edges.size(), 1U);
  EXPECT_TRUE(combine(dfa, dfa, Keep::kOnlyInFirst)->is_empty());
}

TEST(ByteAutomaton, GivesUpBeyondItsLimit) {
  // The 20th byte from the end is an 'a': 2^20 states.
  Nfa nfa;
  const Nfa::State start = nfa.add_state();
  nfa.add_edge(start, 'a', 'b', start);
  Nfa::State at = nfa.add_state();
  nfa.add_edge(start, 'a', 'a', at);
  for (int i = 0; i < 19; ++i) {
    const Nfa::State next = nfa.add_state();
    nfa.add_edge(at, 'a', 'b', next);
    at = next;
  }
  EXPECT_FALSE(determinize(nfa, start, at).has_value());
}

TEST(JsonText, SpellsEachCharacterOnce) {
  const Dfa any = string_content(1, 1).value();
  for (const char* text : {"a", "\x7F", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\\\"",
                           "\\\\", "\\n", "\\u0000", "\\u001f", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(any.matches(text)) << text;
  }
  for (const char* text : {"", "ab", "\"", "\\", "\n", "\\/", "\\u0041", "\\u001F", "\\u000a",
                           "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xC3"}) {
    EXPECT_FALSE(any.matches(text)) << text;
  }
}

TEST(JsonText, CountsCharactersNotBytes) {
  const Dfa two_or_three = string_content(2, 3).value();
  EXPECT_FALSE(two_or_three.matches("\xC3\xA9"));
  EXPECT_TRUE(two_or_three.matches("\xC3\xA9\\n"));
  EXPECT_TRUE(two_or_three.matches("\\u0001\xF0\x9F\x98\x80z"));
  EXPECT_FALSE(two_or_three.matches("abcd"));
}

TEST(JsonText, SpellsStringsCanonically) {
  EXPECT_EQ(json_string("a\"\\\n\x01\xC3\xA9"), "\"a\\\"\\\\\\n\\u0001\xC3\xA9\"");
}

}  // namespace
}  // namespace nibble::grammar
