// Ids that two independent tokenizers give for the same texts.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace nibble::text {
namespace {

const Tokenizer& gpt_oss() {
  static const Result<Tokenizer> loaded = Tokenizer::load(NIBBLE_GPT_OSS_TOKENIZER);
  return loaded.value();
}

// One JSON object a line: `text` and, under `key`, its ids.
int expect_equal(const Tokenizer& tokenizer, const std::string& name, const char* key,
                 SpecialTokens special) {
  std::ifstream file(NIBBLE_SOURCE_DIR "/tests/golden/" + name);
  std::string line;
  int count = 0;
  while (std::getline(file, line)) {
    const auto golden = nlohmann::json::parse(line);
    const auto text = golden.at("text").get<std::string>();
    const std::vector<std::int32_t> ids = tokenizer.encode(text, special);
    EXPECT_EQ(ids, golden.at(key).get<std::vector<std::int32_t>>()) << name << ": " << line;
    EXPECT_EQ(tokenizer.decode(ids), text);
    ++count;
  }
  return count;
}

TEST(TokenizerReference, RecognisesSpecialTokensAsTheReferenceDoes) {
  EXPECT_EQ(expect_equal(gpt_oss(), "gpt-oss-tokenizer/encodings.jsonl", "ids_with_special",
                         SpecialTokens::kRecognise),
            600);
}

TEST(TokenizerReference, KeepsSpelledTokensAsTextAsTheReferenceDoes) {
  EXPECT_EQ(expect_equal(gpt_oss(), "gpt-oss-tokenizer/encodings_plain.jsonl", "ids",
                         SpecialTokens::kAsText),
            600);
}

}  // namespace
}  // namespace nibble::text
