// Ids that independent tokenizers give for the same texts: `tokenizers`, and for plain text
// openai-harmony.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/fnv1a.h"
#include "text/tokenizer.h"

namespace nibble::text {
namespace {

using nlohmann::json;

const std::string kGolden = NIBBLE_SOURCE_DIR "/tests/golden/";
const std::string kDemo = NIBBLE_SOURCE_DIR "/models/demo/tokenizer.json";

const Tokenizer& gpt_oss() {
  static const Result<Tokenizer> kLoaded = Tokenizer::load(NIBBLE_GPT_OSS_TOKENIZER);
  return kLoaded.value();
}

void expect_equal(const Tokenizer& tokenizer, const std::string& text, SpecialTokens special,
                  const json& golden) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text, special);
  EXPECT_EQ(ids, golden.get<std::vector<std::int32_t>>()) << text;
  EXPECT_EQ(tokenizer.decode(ids), text);
}

// One JSON object a line: `text` and, under `key`, its ids. Returns the number of lines.
int expect_equal_lines(const std::string& name, const char* key, SpecialTokens special) {
  std::ifstream file(kGolden + name);
  std::string line;
  int count = 0;
  for (; std::getline(file, line); ++count) {
    const json golden = json::parse(line);
    expect_equal(gpt_oss(), golden.at("text").get<std::string>(), special, golden.at(key));
  }
  return count;
}

TEST(TokenizerReference, RecognisesSpecialTokens) {
  EXPECT_EQ(expect_equal_lines("gpt-oss-tokenizer/encodings.jsonl", "ids_with_special",
                               SpecialTokens::kRecognise),
            600);
}

TEST(TokenizerReference, KeepsSpelledTokensAsText) {
  EXPECT_EQ(
      expect_equal_lines("gpt-oss-tokenizer/encodings_plain.jsonl", "ids", SpecialTokens::kAsText),
      600);
}

void append_utf8(std::uint32_t point, std::string& out) {
  const auto tail = [&](unsigned shift) {
    out += static_cast<char>(0x80U | ((point >> shift) & 0x3FU));
  };
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xC0U | (point >> 6U));
    tail(0);
  } else if (point < 0x10000) {
    out += static_cast<char>(0xE0U | (point >> 12U));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0U | (point >> 18U));
    tail(12);
    tail(6);
    tail(0);
  }
}

// The text that tools/golden/tokenizer_golden.py makes of 256 characters, # standing for each.
std::string block_text(std::uint32_t first) {
  std::string text;
  for (std::uint32_t point = first; point < first + 256; ++point) {
    if (point >= 0xD800 && point < 0xE000) {
      continue;
    }
    for (const char c : std::string("A#a ##1#'s#\n#/")) {
      if (c == '#') {
        append_utf8(point, text);
      } else {
        text += c;
      }
    }
  }
  return text;
}

TEST(TokenizerReference, KnowsEveryCharacterOfUnicode) {
  std::ifstream file(kGolden + "gpt-oss-tokenizer/unicode.txt");
  std::uint32_t first = 0;
  std::uint64_t hash = 0;
  int count = 0;
  for (; file >> std::hex >> first >> hash; ++count) {
    const std::string text = block_text(first);
    const std::vector<std::int32_t> ids = gpt_oss().encode(text, SpecialTokens::kRecognise);
    EXPECT_EQ(fnv1a(ids), hash) << "from character " << std::hex << first;
    EXPECT_EQ(gpt_oss().decode(ids), text);
  }
  EXPECT_EQ(count, 0x110000 / 256);
}

json spelled_as_strings(const json& merges) {
  json out = json::array();
  for (const json& pair : merges) {
    out.push_back(pair[0].get<std::string>() + " " + pair[1].get<std::string>());
  }
  return out;
}

// The demo vocabulary with more added tokens, under pre-tokenizers of many kinds.
TEST(TokenizerReference, AppliesEveryPreTokenizerInBothMergeSpellings) {
  std::ifstream golden_file(kGolden + "demo-tokenizer/encodings.json");
  const json golden = json::parse(golden_file);
  std::ifstream demo_file(kDemo);
  json tree = json::parse(demo_file);
  tree["added_tokens"] = golden.at("added_tokens");
  EXPECT_EQ(golden.at("cases").size(), 13U);
  for (const json& test : golden.at("cases")) {
    SCOPED_TRACE(test.at("name").get<std::string>());
    tree["pre_tokenizer"] = test.at("pre_tokenizer");
    const Result<Tokenizer> made = Tokenizer::from_json("demo", tree.dump());
    ASSERT_TRUE(made.has_value()) << made.error().message();
    for (std::size_t i = 0; i < test.at("ids").size(); ++i) {
      expect_equal(*made, golden.at("texts")[i].get<std::string>(), SpecialTokens::kRecognise,
                   test.at("ids")[i]);
    }
    if (tree["model"]["merges"][0].is_array()) {
      tree["model"]["merges"] = spelled_as_strings(tree["model"]["merges"]);
    }
  }
}

}  // namespace
}  // namespace nibble::text
