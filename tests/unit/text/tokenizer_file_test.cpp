// Files that are refused: each with one line that names the file and the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/tiny_tokenizer.h"
#include "text/tokenizer.h"

namespace nibble::text {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const json& sound() {
  static const json kTree = json::parse(
      TinyTokenizer{.merges = {{"a", "b"}, {"ab", "c"}},
                    .added_tokens = R"([{"id": 300, "content": "<x>", "special": true}])",
                    .pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [
          {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated", "invert": false},
          {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})"}
          .json());
  return kTree;
}

void expect_refused(const std::string& text, Code code, const std::string& field) {
  const Result<Tokenizer> made = Tokenizer::from_json("a/tokenizer.json", text);
  ASSERT_FALSE(made.has_value()) << field << ": " << text.substr(0, 200);
  EXPECT_EQ(name(made.error().code()), name(code)) << made.error().message();
  EXPECT_THAT(made.error().message(), testing::StartsWith("a/tokenizer.json: "));
  EXPECT_THAT(made.error().message(), HasSubstr(field));
  EXPECT_THAT(made.error().message(), testing::Not(HasSubstr("\n")));
  EXPECT_LT(made.error().message().size(), 250U);
}

struct Change {
  const char* pointer;
  const char* value;  // JSON; nullptr: removed
  Code code;
  const char* field;
};

TEST(TokenizerFile, AcceptsTheSoundFile) {
  const Result<Tokenizer> made = Tokenizer::from_json("t", sound().dump());
  EXPECT_TRUE(made.has_value()) << made.error().message();
}

TEST(TokenizerFile, NamesTheFieldThatIsWrong) {
  const Change changes[] = {
      {"/model", nullptr, Code::kCorrupt, "model"},
      {"/model", "[]", Code::kCorrupt, "model"},
      {"/model/type", "\"WordPiece\"", Code::kUnsupported, "model.type"},
      {"/model/vocab", nullptr, Code::kCorrupt, "model.vocab"},
      {"/model/vocab", "{}", Code::kCorrupt, "model.vocab"},
      {"/model/vocab", "[\"a\"]", Code::kCorrupt, "model.vocab"},
      {"/model/vocab/a", "-1", Code::kCorrupt, "model.vocab, entry"},
      {"/model/vocab/a", "1.5", Code::kCorrupt, "model.vocab, entry"},
      {"/model/vocab/a", "\"1\"", Code::kCorrupt, "model.vocab, entry"},
      {"/model/vocab/a", "[1]", Code::kCorrupt, "model.vocab, entry"},
      {"/model/vocab/a", "98", Code::kCorrupt, "the id 98 comes twice"},
      {"/model/vocab/a", "4194304", Code::kCorrupt, "model.vocab, entry"},
      {"/model/vocab/a", "18446744073709551615", Code::kCorrupt, "model.vocab, entry"},
      {"/model/vocab/", "500", Code::kCorrupt, "model.vocab, entry"},
      {"/model/vocab/Z", nullptr, Code::kUnsupported, "model.vocab: want a token for every byte"},
      {"/model/merges", "7", Code::kCorrupt, "model.merges"},
      {"/model/merges/1", "7", Code::kCorrupt, "model.merges[1]"},
      {"/model/merges/1", "\"abc\"", Code::kCorrupt, "model.merges[1]"},
      {"/model/merges/1", "\"a b c\"", Code::kCorrupt, "model.merges[1]"},
      {"/model/merges/1", "[\"a\"]", Code::kCorrupt, "model.merges[1]"},
      {"/model/merges/1", "[]", Code::kCorrupt, "model.merges[1]"},
      {"/model/merges/1", "[\"a\", \"b\", \"c\"]", Code::kCorrupt, "model.merges[1]"},
      {"/model/merges/1", "[\"a\", 7]", Code::kCorrupt, "model.merges[1]"},
      {"/model/merges/1", "[\"a\", [\"b\"]]", Code::kCorrupt, "model.merges[1]"},
      {"/model/merges/1", "{\"a\": \"b\"}", Code::kCorrupt, "model.merges[1]"},
      {"/model/merges/1", "[\"a\", \"c\"]", Code::kCorrupt, "model.merges[1]"},
      {"/model/merges/1", "[\"ba\", \"c\"]", Code::kCorrupt, "model.merges[1]"},
      {"/model/merges/1", "[\"\", \"ab\"]", Code::kCorrupt, "model.merges[1]"},
      {"/model/merges/1", "[\"a\", \"\\u2581\"]", Code::kCorrupt, "model.merges[1]"},
      {"/model/dropout", "0.1", Code::kUnsupported, "model.dropout"},
      {"/model/byte_fallback", "true", Code::kUnsupported, "model.byte_fallback"},
      {"/model/ignore_merges", "\"yes\"", Code::kCorrupt, "model.ignore_merges"},
      {"/model/end_of_word_suffix", "\"</w>\"", Code::kUnsupported, "model.end_of_word_suffix"},
      {"/model/continuing_subword_prefix", "\"##\"", Code::kUnsupported, "continuing_subword"},
      {"/added_tokens", "{}", Code::kCorrupt, "added_tokens"},
      {"/added_tokens/0", "\"<x>\"", Code::kCorrupt, "added_tokens[0]"},
      {"/added_tokens/0/id", nullptr, Code::kCorrupt, "added_tokens[0].id"},
      {"/added_tokens/0/id", "-3", Code::kCorrupt, "added_tokens[0].id"},
      {"/added_tokens/0/id", "9999999999", Code::kCorrupt, "added_tokens[0].id"},
      {"/added_tokens/0/id", "97", Code::kCorrupt, "added_tokens[0].id"},
      {"/added_tokens/0/content", "\"\"", Code::kCorrupt, "added_tokens[0].content"},
      {"/added_tokens/0/content", "5", Code::kCorrupt, "added_tokens[0].content"},
      {"/added_tokens/0/lstrip", "true", Code::kUnsupported, "added_tokens[0].lstrip"},
      {"/added_tokens/0/rstrip", "true", Code::kUnsupported, "added_tokens[0].rstrip"},
      {"/added_tokens/0/single_word", "true", Code::kUnsupported, "added_tokens[0].single_word"},
      {"/added_tokens/0/special", "1", Code::kCorrupt, "added_tokens[0].special"},
      {"/added_tokens/1", R"({"id": 301, "content": "<x>"})", Code::kCorrupt, "added_tokens[1]"},
      {"/added_tokens/1", R"({"id": 301, "content": "<x>", "normalized": true})", Code::kCorrupt,
       "added_tokens[1]"},
      {"/normalizer", R"({"type": "NFC"})", Code::kUnsupported, "normalizer"},
      {"/normalizer", "\"NFC\"", Code::kUnsupported, "normalizer"},
      {"/decoder", R"({"type": "Metaspace"})", Code::kUnsupported, "decoder"},
      {"/pre_tokenizer", nullptr, Code::kUnsupported, "pre_tokenizer"},
      {"/pre_tokenizer", "[]", Code::kCorrupt, "pre_tokenizer"},
      {"/pre_tokenizer", "{}", Code::kCorrupt, "pre_tokenizer.type"},
      {"/pre_tokenizer/pretokenizers", "[]", Code::kUnsupported, "pretokenizers"},
      {"/pre_tokenizer/pretokenizers", "5", Code::kCorrupt, "pretokenizers"},
      {"/pre_tokenizer/pretokenizers/0", "5", Code::kCorrupt, "pretokenizers[0]"},
      {"/pre_tokenizer/pretokenizers/0/type", "\"Metaspace\"", Code::kUnsupported,
       "pretokenizers[0].type"},
      {"/pre_tokenizer/pretokenizers/1/add_prefix_space", nullptr, Code::kUnsupported,
       "pretokenizers[1].add_prefix_space"},
      {"/pre_tokenizer/pretokenizers/2", R"({"type": "ByteLevel"})", Code::kUnsupported,
       "pretokenizers[2]"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"", Code::kUnsupported,
       "pretokenizers[0].behavior"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "\"isolated\"", Code::kCorrupt,
       "pretokenizers[0].behavior"},
      {"/pre_tokenizer/pretokenizers/0/invert", "0", Code::kCorrupt, "pretokenizers[0].invert"},
      {"/pre_tokenizer/pretokenizers/0/pattern", "\"\\\\s\"", Code::kCorrupt,
       "pretokenizers[0].pattern"},
      {"/pre_tokenizer/pretokenizers/0/pattern", R"({"Glob": "*"})", Code::kCorrupt,
       "pretokenizers[0].pattern"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"\\\\w+\"", Code::kUnsupported,
       "pretokenizers[0].pattern.Regex: \\w at byte 0"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(\"", Code::kUnsupported,
       "pretokenizers[0].pattern"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"a*\"", Code::kUnsupported,
       "pretokenizers[0].pattern"},
  };
  for (const Change& change : changes) {
    SCOPED_TRACE(std::string(change.pointer) + " = " + (change.value ? change.value : "removed"));
    json tree = sound();
    const json::json_pointer pointer(change.pointer);
    if (change.value != nullptr) {
      tree[pointer] = json::parse(change.value);
    } else {
      tree[pointer.parent_pointer()].erase(pointer.back());
    }
    expect_refused(tree.dump(), change.code, change.field);
  }
}

TEST(TokenizerFile, RefusesWhatIsNoJson) {
  const std::string whole = sound().dump();
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("\0", 1), std::string("nul"), whole + "x",
        whole.substr(0, whole.size() - 1), whole.substr(0, whole.size() / 2),
        std::string("{\"a\": \"\xFF\"}"), std::string("{\"a\": 1e999}")}) {
    expect_refused(text, Code::kCorrupt, "not valid JSON");
  }
  for (const char* text :
       {"null", "[]", "7", "\"model\"", "[{\"model\": {\"vocab\": {\"a\": 1}}}]"}) {
    expect_refused(text, Code::kCorrupt, "want a JSON object");
  }
}

TEST(TokenizerFile, RefusesDepthAndRepetition) {
  expect_refused(std::string(100000, '['), Code::kCorrupt, "nest deeper");
  expect_refused(R"({"model": {"vocab": {"a": 1}, "vocab": {"b": 2}}})", Code::kCorrupt,
                 "\"vocab\" comes twice");
  expect_refused(R"({"model": {"merges": [], "merges": []}})", Code::kCorrupt,
                 "\"merges\" comes twice");
  expect_refused(R"({"model": {}, "model": {}})", Code::kCorrupt, "\"model\" comes twice");
  std::string twice = sound().dump();
  twice.replace(twice.find("\"Z\":90"), 6, "\"Z\":90,\"Z\":900");
  expect_refused(twice, Code::kCorrupt, "the token comes twice");
}

// The tables may come in any order: merges before the vocabulary, the model before the rest.
TEST(TokenizerFile, ReadsFieldsInAnyOrder) {
  nlohmann::ordered_json model;
  for (const char* key : {"merges", "vocab", "type"}) {
    model[key] = sound()["model"][key];
  }
  nlohmann::ordered_json tree;
  tree["model"] = model;
  tree["unknown"] = {{"model", {{"vocab", {1, 2}}}}};
  tree["pre_tokenizer"] = sound()["pre_tokenizer"];
  const Result<Tokenizer> made = Tokenizer::from_json("t", tree.dump());
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_THAT(made->encode("abc", SpecialTokens::kAsText), testing::ElementsAre(257));
}

}  // namespace
}  // namespace nibble::text
