#include "text/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nibble::text {
namespace {

std::string translated(std::string_view pattern) {
  const Result<std::string> result = translate_pattern(pattern);
  return result ? *result : "refused: " + result.error().message();
}

TEST(Pattern, CopiesWhatMeansTheSame) {
  for (const char* pattern :
       {"a|b", "(?i:'s|'t)?", "a{2}b{1,}c{1,3}", "(a)(?=b)(?!c)(?<=d)(?<!e)(?>f)", "[^\\r\\n]+?",
        "a*+b++c?+", "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]", "[\xE4\xB8\x80-\xE9\xBE\xA5]+",
        "\\.\\$\\^", ""}) {
    EXPECT_EQ(translated(pattern), pattern);
  }
}

TEST(Pattern, SpellsSpacesOut) {
  EXPECT_EQ(translated("\\s"), "[\\p{Z}\\x{9}-\\x{D}\\x{85}]");
  EXPECT_EQ(translated("\\S"), "[^\\p{Z}\\x{9}-\\x{D}\\x{85}]");
  EXPECT_EQ(translated("[^\\sa]"), "[^\\p{Z}\\x{9}-\\x{D}\\x{85}a]");
  EXPECT_EQ(translated("[a\\S]"), "[a\\S\\x{180E}]");
}

TEST(Pattern, AddsTheCharactersOfLaterUnicode) {
  EXPECT_EQ(translated("\\p{Lt}"), "[\\p{Lt}]");
  EXPECT_EQ(translated("\\p{Pd}"), "[\\p{Pd}\\x{10D6E}-\\x{10D6E}]");
  EXPECT_EQ(translated("\\P{Pd}"), "[^\\p{Pd}\\x{10D6E}-\\x{10D6E}]");
  EXPECT_EQ(translated("[a\\p{Sm}]"), "[a\\p{Sm}\\x{10D8E}-\\x{10D8F}]");
  EXPECT_THAT(translated("\\p{L}"), testing::HasSubstr("\\x{31350}-\\x{323AF}"));
}

TEST(Pattern, RefusesWhatMeansSomethingElse) {
  for (const char* pattern : {"\\w",    "\\W",         "\\b",      "\\h",
                              "\\R",    "\\X",         "\\1",      "\\u0041",
                              "\\x41",  "\\",          "\\p{Han}", "\\p{^L}",
                              "\\pL",   "\\p{L",       "\\p{Cn}",  "[\\P{L}]",
                              "[\\D]",  ".",           "^a",       "a$",
                              "(?m:a)", "(?<name>a)",  "(?i)a",    "(?#c)",
                              "a{,3}",  "a{1,2}?",     "a{1,2}+",  "a{2}?",
                              "a{",     "a{b}",        "a{1,2,3}", "[a-z&&[aeiou]]",
                              "[a&&b]", "[[:alpha:]]", "[]a]",     "[^]a]",
                              "[a",     "a\\\xC3\xA9"}) {
    EXPECT_THAT(translated(pattern), testing::StartsWith("refused: ")) << pattern;
  }
  EXPECT_EQ(translated("ab\\w+"), "refused: \\w at byte 2 is not supported");
}

TEST(Pattern, QuotesLiteralText) {
  EXPECT_EQ(literal_pattern("a.b\\E\xC3\xA9 "), "a\\x{2E}b\\x{5C}E\xC3\xA9\\x{20}");
}

}  // namespace
}  // namespace nibble::text
