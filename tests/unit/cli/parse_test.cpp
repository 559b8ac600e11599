#include "cli/parse.h"

#include <gmock/gmock.h>

#include <limits>

namespace nibble::cli {
namespace {

using ::testing::ElementsAre;

constexpr IntRange kAny{0, std::numeric_limits<std::int64_t>::max()};

TEST(ParseReal, TakesTheEndsOfAClosedRange) {
  EXPECT_EQ(*parse_real("0", {0, 1}), 0.0F);
  EXPECT_EQ(*parse_real("1", {0, 1}), 1.0F);
  EXPECT_EQ(*parse_real("+.5", {0, 1}), 0.5F);
  EXPECT_EQ(*parse_real("-2", {-2, 2}), -2.0F);
}

TEST(ParseReal, NamesTheRangeAndTheValueInItsRefusal) {
  EXPECT_EQ(parse_real("0", {0, 1, true}).error().message(), "want a number in (0, 1], found '0'");
  EXPECT_EQ(parse_real("1.1", {0, 1}).error().message(), "want a number in [0, 1], found '1.1'");
}

TEST(ParseReal, RefusesWhatIsNoFiniteNumber) {
  for (const char* text : {"", " ", "nan", "inf", "1x", "0x1", "1,5", "--1", "+-1", "1e999"}) {
    EXPECT_FALSE(parse_real(text, {-2, 2})) << text;
  }
}

TEST(ParseInteger, IsDecimalOnly) {
  EXPECT_EQ(*parse_integer("010", {0, 99}), 10);
  EXPECT_EQ(*parse_integer("-1", {-1, 99}), -1);
  for (const char* text : {"", "0x10", "1.0", "1e3", "100", "-2", "99999999999999999999"}) {
    EXPECT_FALSE(parse_integer(text, {-1, 99})) << text;
  }
}

TEST(ParseSeed, TakesTheWholeRangeOfUnsigned64) {
  EXPECT_EQ(*parse_seed("18446744073709551615"), 18446744073709551615ULL);
  EXPECT_FALSE(parse_seed("18446744073709551616"));
  EXPECT_FALSE(parse_seed("-1"));
}

TEST(ParseCount, SuffixesAreDecimalInSmallAndBinaryInCapitalLetters) {
  EXPECT_EQ(*parse_count("8192", kAny), 8192);
  EXPECT_EQ(*parse_count("8k", kAny), 8000);
  EXPECT_EQ(*parse_count("8K", kAny), 8192);
  EXPECT_EQ(*parse_count("2m", kAny), 2'000'000);
  EXPECT_EQ(*parse_count("5G", kAny), std::int64_t{5} << 30);
}

TEST(ParseCount, RefusesOverflowAndBareSuffixes) {
  for (const char* text : {"", "k", "9223372036854775807k", "1kk", "1T", "-1"}) {
    EXPECT_FALSE(parse_count(text, kAny)) << text;
  }
}

TEST(ParseIds, TakesCommasBlanksAndBrackets) {
  EXPECT_THAT(*parse_ids("1,2,3"), ElementsAre(1, 2, 3));
  EXPECT_THAT(*parse_ids(" [1, 2,\n3]\n"), ElementsAre(1, 2, 3));
  EXPECT_THAT(*parse_ids("2147483647"), ElementsAre(2147483647));
}

TEST(ParseIds, RefusesNegativesWordsAndNothing) {
  for (const char* text : {"", ",", "-1", "1,-2", "1,a", "1.5", "2147483648"}) {
    EXPECT_FALSE(parse_ids(text)) << text;
  }
  EXPECT_EQ(parse_ids("1,a,3").error().message(), "want token ids such as 1,2,3, found 'a'");
}

TEST(ParseBias, TakesBothSpellings) {
  EXPECT_EQ(*parse_bias("15=-2.5"), std::pair(15, -2.5F));
  EXPECT_EQ(*parse_bias("15:100"), std::pair(15, 100.0F));
  EXPECT_EQ(*parse_bias("15+1"), std::pair(15, 1.0F));
  EXPECT_EQ(*parse_bias("15-1"), std::pair(15, -1.0F));
  for (const char* text : {"", "15", "15=", "=1", "a=1", "15=101", "15=nan"}) {
    EXPECT_FALSE(parse_bias(text)) << text;
  }
}

TEST(ParseDate, WantsYearMonthDay) {
  EXPECT_EQ(*parse_date("2026-11-30"), "2026-11-30");
  EXPECT_EQ(*parse_date(""), "");
  for (const char* text : {"2026-11-3", "30.11.2026", "2026/11/30", "2026-11-30T", "abcd-ef-gh"}) {
    EXPECT_FALSE(parse_date(text)) << text;
  }
}

TEST(Nearest, FindsMisspellingsAndNothingElse) {
  const std::vector<std::string> verbs = {"run", "score", "tokenize", "inspect"};
  EXPECT_EQ(nearest("tokenise", verbs), "tokenize");
  EXPECT_EQ(nearest("scroe", verbs), "score");
  EXPECT_EQ(nearest("rum", verbs), "run");
  EXPECT_EQ(nearest("serve", verbs), "");
  EXPECT_EQ(nearest("", verbs), "");
}

TEST(BytesText, KeepsThreeDigits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1.00 kB");
  EXPECT_EQ(bytes_text(19'296'240), "19.3 MB");
  EXPECT_EQ(bytes_text(999'600), "1.00 MB");
  EXPECT_EQ(bytes_text(65'250'000'000), "65.2 GB");
}

}  // namespace
}  // namespace nibble::cli
