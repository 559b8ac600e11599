#include "grammar/number_text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <regex>
#include <string>
#include <vector>

namespace nibble::grammar {
namespace {

NumberRange range_of(bool is_integer, const std::string& least, bool is_least_open,
                     const std::string& most, bool is_most_open) {
  NumberRange range{.is_integer = is_integer};
  if (!least.empty()) {
    range.least = Bound{least, is_least_open};
  }
  if (!most.empty()) {
    range.most = Bound{most, is_most_open};
  }
  return range;
}

// Every text of up to 5 characters that could be the beginning of a number.
std::vector<std::string> candidates() {
  std::vector<std::string> out = {""};
  for (std::size_t begin = 0, length = 0; length < 5; ++length) {
    for (const std::size_t end = out.size(); begin < end; ++begin) {
      for (const char c : std::string("-.0159")) {
        out.push_back(out[begin] + c);
      }
    }
  }
  return out;
}

TEST(NumberText, ReadsExactlyTheDecimalsInTheRange) {
  const std::regex integer("-?(0|[1-9][0-9]*)");
  const std::regex decimal("-?(0|[1-9][0-9]*)(\\.[0-9]+)?");
  const std::vector<std::string> texts = candidates();
  const std::vector<std::string> bounds = {"",     "0",    "5",   "-5",  "0.5",  "-0.25",
                                           "1.05", "12.5", "100", "-10", "9.99", "1e1"};
  for (const bool is_integer : {true, false}) {
    const std::regex& syntax = is_integer ? integer : decimal;
    for (const std::string& least : bounds) {
      for (const std::string& most : bounds) {
        const bool is_open = (least.size() + most.size()) % 2 == 1;  // both kinds, not all pairs
        const Dfa dfa = number_text(range_of(is_integer, least, is_open, most, !is_open)).value();
        for (const std::string& text : texts) {
          const double value = std::strtod(text.c_str(), nullptr);
          const double low = std::strtod(least.c_str(), nullptr);
          const double high = std::strtod(most.c_str(), nullptr);
          const bool is_signed_zero = value == 0.0 && text.starts_with('-');
          const bool is_wanted = std::regex_match(text, syntax) && !is_signed_zero &&
                                 (least.empty() || (is_open ? value > low : value >= low)) &&
                                 (most.empty() || (is_open ? value <= high : value < high));
          ASSERT_EQ(dfa.matches(text), is_wanted)
              << text << " in " << least << (is_open ? " (open)" : "") << " .. " << most;
        }
      }
    }
  }
}

TEST(NumberText, BoundsDigitsSoThatEveryReaderAgrees) {
  const Dfa integers = number_text({.is_integer = true}).value();
  EXPECT_TRUE(integers.matches("999999999999999"));
  EXPECT_FALSE(integers.matches("1000000000000000"));
  const Dfa numbers = number_text({}).value();
  EXPECT_TRUE(numbers.matches("-1.5e-10"));
  EXPECT_TRUE(numbers.matches("1E+99"));
  EXPECT_FALSE(numbers.matches("1e100"));
  EXPECT_FALSE(numbers.matches("01"));
  EXPECT_FALSE(numbers.matches("1."));
  EXPECT_FALSE(numbers.matches("-0"));
  EXPECT_FALSE(numbers.matches("-0e1"));
}

TEST(NumberText, RefusesBoundsItCannotSpell) {
  EXPECT_FALSE(number_text(range_of(true, "1e15", false, "", false)).has_value());
  EXPECT_FALSE(number_text(range_of(false, "1e-16", false, "", false)).has_value());
  EXPECT_FALSE(number_text(range_of(false, "1e999", false, "", false)).has_value());
  EXPECT_TRUE(number_text(range_of(true, "5", false, "4", false))->is_empty());
}

}  // namespace
}  // namespace nibble::grammar
