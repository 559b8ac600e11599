#include "grammar/regex.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace nibble::grammar {
namespace {

// Every string of up to `length` characters of `alphabet`.
std::vector<std::string> all_strings(const std::string& alphabet, std::size_t length) {
  std::vector<std::string> out = {""};
  for (std::size_t begin = 0; length-- > 0;) {
    const std::size_t end = out.size();
    for (; begin < end; ++begin) {
      for (const char c : alphabet) {
        out.push_back(out[begin] + c);
      }
    }
  }
  return out;
}

TEST(Regex, AgreesWithTheStandardLibrary) {
  const std::vector<std::string> strings = all_strings("ab1_", 5);
  for (const char* pattern : {"a",
                              "^a",
                              "a$",
                              "^a$",
                              "^$",
                              "",
                              "a|b",
                              "^a|b$",
                              "(^a|b$)1",
                              "^(a|b)+$",
                              "a*",
                              "^a*$",
                              "^a+b?$",
                              "^a{2}$",
                              "^a{2,}$",
                              "^a{1,3}b$",
                              "^(ab){0,2}$",
                              "^a{0}$",
                              "^(?:a|1_)*b$",
                              "^[ab]+$",
                              "^[^a]+$",
                              "^[a-b1]+$",
                              "^\\d+$",
                              "^\\D+$",
                              "^\\w{3}$",
                              "^\\W$",
                              "^a.b$",
                              "^a*?b+?$",
                              "^((a|b){2}){2}$",
                              "b(a$|1)",
                              "^(a*)*$",
                              "(a|)b",
                              "^a{0,0}b",
                              "[]",
                              "^[-a]$",
                              "^\\x61b$",
                              "^\\u0061$"}) {
    const Result<Dfa> ours = regex_content(pattern);
    ASSERT_TRUE(ours.has_value()) << pattern << ": " << ours.error().message();
    const std::regex reference(pattern, std::regex::ECMAScript);
    for (const std::string& text : strings) {
      ASSERT_EQ(ours->matches(text), std::regex_search(text, reference))
          << pattern << " on " << text;
    }
  }
}

TEST(Regex, EmptyClassMatchesNothingAndItsComplementEverything) {
  EXPECT_TRUE(regex_content("[]")->is_empty());
  EXPECT_TRUE(regex_content("^[^]$")->matches("\xF0\x9F\x98\x80"));
}

TEST(Regex, MatchesCharactersInTheirCanonicalSpelling) {
  const Dfa dfa = regex_content("^.\xC3\xA9\\n\"[\\u4e00-\\u9fff]$").value();
  EXPECT_TRUE(dfa.matches("x\xC3\xA9\\n\\\"\xE4\xB8\xAD"));
  EXPECT_FALSE(dfa.matches("\\n\xC3\xA9\\n\\\"\xE4\xB8\xAD"));  // '.' is no line end
  EXPECT_FALSE(dfa.matches("x\xC3\xA9\n\\\"\xE4\xB8\xAD"));
}

TEST(Regex, NamesTheFaultAndItsPlace) {
  for (const auto& [pattern, message] : std::vector<std::pair<std::string, std::string>>{
           {"*ab", "byte 0: nothing to repeat"},
           {"{3}k", "byte 0: nothing to repeat"},
           {"a|*", "byte 2: nothing to repeat"},
           {"a**", "byte 2: nothing to repeat"},
           {"^*", "byte 1: nothing to repeat"},
           {"(?<!q)z", "byte 2: look-around"},
           {"(?=q)z", "byte 2: look-around"},
           {"(?<n", "byte 2: a group name"},
           {"[9-0]", "a bad range"},
           {"[\\d-z]", "a bad range"},
           {"[abc", "a '[' without ']'"},
           {"(", "a group without ')'"},
           {"a)", "a ')' that closes nothing"},
           {"\\", "a lone backslash"},
           {"a\\", "a lone backslash"},
           {"\\1", "escape \\1 is not supported"},
           {"\\bx", "escape \\b is not supported"},
           {"\\p{L}", "escape \\p is not supported"},
           {"\\u12", "want 4 hexadecimal digits"},
           {"a{2,1}", "least count is above"},
           {"a{,2}", "want {n}"},
           {"a{2", "want {n}"},
           {"]", "a lone ']'"},
           {"k{0,100000}", "too large"},
           {"((a{1,100}){1,100}){1,100}", "too large"},
           {"(){1000000}", "too large"},
           {"^(a|b)*a(a|b){30}$", "too large"},
           {std::string(70, '('), "nested too deep"}}) {
    const Result<Dfa> found = regex_content(pattern);
    ASSERT_FALSE(found.has_value()) << pattern;
    EXPECT_EQ(found.error().code(), Code::kInvalidArgument);
    EXPECT_NE(found.error().message().find(message), std::string::npos)
        << pattern << ": " << found.error().message();
  }
}

TEST(Regex, RepeatsAreTheSameOnBothSidesOfRoundNumbers) {
  for (int most = 120; most <= 140; ++most) {
    const Dfa dfa = regex_content("^k{1," + std::to_string(most) + "}$").value();
    EXPECT_FALSE(dfa.matches(""));
    EXPECT_TRUE(dfa.matches(std::string(static_cast<std::size_t>(most), 'k')));
    EXPECT_FALSE(dfa.matches(std::string(static_cast<std::size_t>(most) + 1, 'k')));
  }
}

}  // namespace
}  // namespace nibble::grammar
