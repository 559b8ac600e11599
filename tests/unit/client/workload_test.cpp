#include "client/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "text/tokenizer.h"

namespace nibble::client {
namespace {

using testing::HasSubstr;

const text::Tokenizer& demo() {
  static const auto kTokenizer =
      text::Tokenizer::load(std::string(NIBBLE_SOURCE_DIR) + "/models/demo");
  return kTokenizer.value();
}

std::vector<std::int32_t> encode(const std::string& text) {
  return demo().encode(text, text::SpecialTokens::kAsText);
}

TEST(RandomPrompts, HaveExactlyTheTokensThatWereAsked) {
  const auto prompts = random_prompts({.input_len = 300, .output_len = 20}, 20, 1, &demo());
  std::set<std::string> texts;
  for (const Prompt& prompt : *prompts) {
    EXPECT_EQ(prompt.num_tokens, 300);
    EXPECT_EQ(prompt.output_len, 20);
    EXPECT_EQ(encode(prompt.text), prompt.ids);
    EXPECT_EQ(prompt.ids.size(), 300U);
    texts.insert(prompt.text);
  }
  EXPECT_EQ(texts.size(), 20U);
}

TEST(RandomPrompts, LengthsAreDrawnFromTheirRange) {
  const RandomShape shape{.input_len = 10, .output_len = 3, .range_ratio = 0.5};
  const auto prompts = random_prompts(shape, 400, 2, nullptr);
  std::set<std::int32_t> inputs;
  std::set<std::int32_t> outputs;
  for (const Prompt& prompt : *prompts) {
    inputs.insert(prompt.num_tokens);
    outputs.insert(prompt.output_len);
    EXPECT_TRUE(prompt.ids.empty());
    EXPECT_EQ(std::count(prompt.text.begin(), prompt.text.end(), ' '), prompt.num_tokens);
  }
  EXPECT_THAT(inputs, testing::ElementsAre(5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(outputs, testing::ElementsAre(1, 2, 3, 4, 5));
}

TEST(RandomPrompts, DependOnTheSeedAlone) {
  const auto texts = [](std::uint64_t seed) {
    return random_prompts({.input_len = 8}, 1, seed, &demo())->front().text;
  };
  EXPECT_EQ(texts(4), texts(4));
  EXPECT_NE(texts(4), texts(5));
}

TEST(CustomPrompts, AreTheLinesRepeated) {
  const auto prompts =
      custom_prompts("{\"prompt\": \"Once upon\"}\r\n\n{\"prompt\": \"b\", \"output_tokens\": 7}",
                     30, 5, 0, &demo());
  ASSERT_EQ(prompts->size(), 5U);
  std::multiset<std::string> texts;
  for (const Prompt& prompt : *prompts) {
    texts.insert(prompt.text);
    EXPECT_EQ(prompt.output_len, prompt.text == "b" ? 7 : 30);
    EXPECT_EQ(static_cast<std::size_t>(prompt.num_tokens), encode(prompt.text).size());
  }
  EXPECT_GE(texts.count("b"), 2U);
  EXPECT_GE(texts.count("Once upon"), 2U);
}

TEST(CustomPrompts, WrongLinesAreNamed) {
  const auto message = [](const char* text) {
    return custom_prompts(text, 1, 1, 0, nullptr).error().message();
  };
  EXPECT_THAT(message(""), HasSubstr("found none"));
  EXPECT_THAT(message("{\"prompt\":\"a\"}\n{\"text\":\"b\"}"), HasSubstr("line 2: want"));
  EXPECT_THAT(message("{\"prompt\":1}"), HasSubstr("line 1: want"));
  EXPECT_THAT(message("{\"prompt\":\"a\",\"output_tokens\":0}"), HasSubstr("output_tokens: want"));
  EXPECT_THAT(message("nonsense"), HasSubstr("found 'nonsense'"));
}

TEST(ShareGptPrompts, TakeTheFirstTurnAndTheLengthOfTheSecond) {
  const std::string json = R"([
    {"conversations": [{"from":"human","value":"Tell me a long story about a cat."},
                       {"from":"gpt","value":"Once upon a time there was a cat."}]},
    {"conversations": [{"value":"only one turn of this one"}]},
    {"conversations": [{"value":"a"},{"value":"too short a prompt, this"}]},
    {"nothing": 1}])";
  const auto prompts = sharegpt_prompts(json, 0, 2, 0, demo());
  ASSERT_EQ(prompts->size(), 2U);
  for (const Prompt& prompt : *prompts) {
    EXPECT_EQ(prompt.text, "Tell me a long story about a cat.");
    EXPECT_EQ(prompt.num_tokens, static_cast<std::int32_t>(encode(prompt.text).size()));
    EXPECT_EQ(prompt.output_len,
              static_cast<std::int32_t>(encode("Once upon a time there was a cat.").size()));
  }
  EXPECT_EQ(sharegpt_prompts(json, 64, 1, 0, demo())->front().output_len, 64);
  EXPECT_EQ(sharegpt_prompts("[]", 0, 1, 0, demo()).error().code(), Code::kCorrupt);
  EXPECT_EQ(sharegpt_prompts("{}", 0, 1, 0, demo()).error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace nibble::client
