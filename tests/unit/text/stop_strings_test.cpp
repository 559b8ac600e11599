#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace nibble::text {
namespace {

struct Outcome {
  std::string text;
  std::string matched;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& parts) {
  StopStrings matcher(stops);
  Outcome outcome;
  bool is_done = false;
  for (const std::string& part : parts) {
    is_done = matcher.push(part, outcome.text);
  }
  if (!is_done) {
    matcher.finish(outcome.text);
  }
  outcome.matched = matcher.matched();
  return outcome;
}

// By definition: the shortest prefix of the text that ends with a stop string, of those the
// longest.
Outcome by_definition(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 0; end <= text.size(); ++end) {
    const std::string prefix = text.substr(0, end);
    std::string longest;
    for (const std::string& stop : stops) {
      if (!stop.empty() && prefix.ends_with(stop) && stop.size() > longest.size()) {
        longest = stop;
      }
    }
    if (!longest.empty()) {
      return {prefix.substr(0, end - longest.size()), longest};
    }
  }
  return {text, ""};
}

std::size_t longest_overlap(const std::vector<std::string>& stops, const std::string& text) {
  std::size_t longest = 0;
  for (const std::string& stop : stops) {
    for (std::size_t length = 1; length < stop.size(); ++length) {
      longest = text.ends_with(stop.substr(0, length)) ? std::max(longest, length) : longest;
    }
  }
  return longest;
}

TEST(StopStrings, FindsAMatchOverPieceBordersAndDropsTheRest) {
  const Outcome wanted{"alpha bra", "vo cha"};
  EXPECT_EQ(run({"vo cha"}, {"alpha ", "bra", "vo c", "harlie", " and", " more"}), wanted);
  EXPECT_EQ(run({"vo cha"}, {"alpha bravo charlie and more"}), wanted);
}

TEST(StopStrings, AgreesWithItsDefinitionOverAllCuts) {
  const std::vector<std::vector<std::string>> sets = {
      {"aab"}, {"ab", "b"}, {"abab", "bab"}, {"abcd", "bc"}, {"aaa", "aa"}, {"ba", "", "ca"}, {}};
  for (const std::vector<std::string>& stops : sets) {
    for (int i = 0; i < 2187; ++i) {  // all texts of 7 letters
      std::string text;
      for (int left = i, place = 0; place < 7; ++place, left /= 3) {
        text += static_cast<char>('a' + left % 3);
      }
      const Outcome wanted = by_definition(stops, text);
      for (unsigned cuts = 0; cuts < 64; ++cuts) {
        std::vector<std::string> parts(1);
        for (std::size_t at = 0; at < text.size(); ++at) {
          parts.back() += text[at];
          if (((cuts >> at) & 1U) != 0) {
            parts.emplace_back();
          }
        }
        ASSERT_EQ(run(stops, parts), wanted) << text << " " << cuts;
      }
    }
  }
}

TEST(StopStrings, WithholdsExactlyWhatMayBecomeAMatch) {
  const std::vector<std::string> stops = {"ABCDEFGHIJ", "aab", "abac"};
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    StopStrings matcher(stops);
    std::string text, out;
    while (true) {
      const char next = "aabcABC"[random() % 7];
      text += next;
      if (matcher.push({&next, 1}, out)) {
        break;
      }
      ASSERT_EQ(out.size(), text.size() - longest_overlap(stops, text)) << text;
      if (text.size() > 60) {
        break;
      }
    }
  }
}

TEST(StopStrings, WithholdsNothingOfPlainText) {
  StopStrings matcher({"ABCDEFGHIJ"});
  std::string out;
  EXPECT_FALSE(matcher.push("hello world", out));
  EXPECT_EQ(out, "hello world");
}

TEST(StopStrings, ReleasesWhatIsWithheldAtTheEnd) {
  StopStrings matcher({"stop"});
  std::string out;
  EXPECT_FALSE(matcher.push("a sto", out));
  EXPECT_EQ(out, "a ");
  matcher.finish(out);
  EXPECT_EQ(out, "a sto");
  EXPECT_FALSE(matcher.push("p", out)) << "what was released is no part of a later match";
  EXPECT_EQ(out, "a stop");
}

TEST(StopStrings, IncludesTheMatchOnRequest) {
  StopStrings matcher({"END"});
  matcher.set_include_match(true);
  std::string out;
  EXPECT_FALSE(matcher.push("the E", out));
  EXPECT_TRUE(matcher.push("ND of it", out));
  EXPECT_EQ(out, "the END");
  EXPECT_TRUE(matcher.push("more", out));
  EXPECT_EQ(out, "the END");
}

}  // namespace
}  // namespace nibble::text
