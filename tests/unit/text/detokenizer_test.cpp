#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/fnv1a.h"

namespace nibble::text {
namespace {

const std::string kBad = "\xEF\xBF\xBD";

std::vector<unsigned char> unsigned_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string decoded(const std::vector<std::string>& parts) {
  Utf8Stream stream;
  std::string out;
  for (const std::string& part : parts) {
    stream.push(part, out);
  }
  stream.finish(out);
  EXPECT_TRUE(stream.empty());
  return out;
}

std::vector<std::string> single_bytes(const std::string& text) {
  std::vector<std::string> parts;
  for (const char byte : text) {
    parts.emplace_back(1, byte);
  }
  return parts;
}

TEST(Utf8Stream, ReplacesEachMaximalSubpartOnce) {
  // The example of the Unicode standard, section 3.9, table 3-8 and after.
  EXPECT_EQ(decoded({"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"}),
            "a" + kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d");
  EXPECT_EQ(decoded({"\xC0\x80"}), kBad + kBad);                        // overlong
  EXPECT_EQ(decoded({"\xED\xA0\x80"}), kBad + kBad + kBad);             // surrogate
  EXPECT_EQ(decoded({"\xF5\x80\x80\x80"}), kBad + kBad + kBad + kBad);  // above U+10FFFF
  EXPECT_EQ(decoded({"\xF4\x90\x80\x80"}), kBad + kBad + kBad + kBad);  // above U+10FFFF
  EXPECT_EQ(decoded({"\xF0\x9F\x98"}), kBad);                           // cut at the end
  EXPECT_EQ(decoded({"\xE2\x82", "x"}), kBad + "x");
}

// Hashes of what Python's bytes.decode("utf-8", "replace") gives.
TEST(Utf8Stream, DecodesEveryPairAsThePythonDecoderDoes) {
  std::string out;
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string pair = {static_cast<char>(a), static_cast<char>(b)};
      const std::string whole = decoded({pair});
      EXPECT_EQ(decoded(single_bytes(pair)), whole);
      out += whole;
    }
  }
  EXPECT_EQ(fnv1a(unsigned_bytes(out)), 0x1441b98453252525U);
}

TEST(Utf8Stream, DecodesQuadruplesOfEdgesAsThePythonDecoderDoes) {
  const std::string edges(
      "\x00\x41\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0\xF1\xF3\xF4"
      "\xF5\xFF",
      25);
  std::string out;
  for (std::size_t i = 0; i < 390625; ++i) {
    const std::string four = {edges[i / 15625], edges[i / 625 % 25], edges[i / 25 % 25],
                              edges[i % 25]};
    const std::string whole = decoded({four});
    ASSERT_EQ(decoded({four.substr(0, 1), four.substr(1, 2), four.substr(3)}), whole);
    ASSERT_EQ(decoded(single_bytes(four)), whole);
    out += whole;
  }
  EXPECT_EQ(fnv1a(unsigned_bytes(out)), 0xb9eb8d0b45e0b6d1U);
}

TEST(Utf8Stream, EmitsACharacterWithItsLastByteAndNotLater) {
  Utf8Stream stream;
  std::string out;
  // Family emoji joined by U+200D, a Hangul syllable, one byte at a time.
  const std::string text = "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xED\x95\x9C";
  std::vector<std::size_t> lengths;
  for (const std::string& byte : single_bytes(text)) {
    stream.push(byte, out);
    lengths.push_back(out.size());
  }
  EXPECT_EQ(out, text);
  EXPECT_EQ(lengths, (std::vector<std::size_t>{0, 0, 0, 4, 4, 4, 7, 7, 7, 7, 11, 11, 11, 14}));
}

TEST(Utf8Stream, ReplacesAtOnceWhatCannotBecomeACharacter) {
  Utf8Stream stream;
  std::string out;
  stream.push("\xE0", out);
  EXPECT_EQ(out, "");
  stream.push("\x80", out);  // E0 wants A0 to BF
  EXPECT_EQ(out, kBad + kBad);
  EXPECT_TRUE(stream.empty());
}

}  // namespace
}  // namespace nibble::text
