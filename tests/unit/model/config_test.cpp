#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/folder.h"

namespace nibble::model {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing_support::read_file;
using testing_support::TemporaryFolder;
using testing_support::write_file;

const std::string kGolden = std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/";

// The config of `folder` with `from` (which must be there) replaced by `to`.
std::string edited(const std::string& folder, const std::string& from, const std::string& to) {
  std::string text = read_file(kGolden + folder + "/config.json");
  const std::size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return place == std::string::npos ? text : text.replace(place, from.size(), to);
}

std::string tiny(const std::string& from, const std::string& to) {
  return edited("tiny", from, to);
}

TEST(Config, ReadsTheHuggingFaceSpelling) {
  const Result<ModelConfig> config = load_config(kGolden + "odd");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->architecture, "gpt_oss");
  EXPECT_EQ(config->num_layers, 3);
  EXPECT_EQ(config->hidden, 160);
  EXPECT_EQ(config->intermediate, 96);
  EXPECT_EQ(config->num_experts, 5);
  EXPECT_EQ(config->top_k, 2);
  EXPECT_EQ(config->num_heads, 6);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_EQ(config->vocab, 1000);
  EXPECT_EQ(config->window, 128);
  EXPECT_THAT(config->is_window_layer, ElementsAre(true, false, true));
  EXPECT_EQ(config->max_position, 131072);
  EXPECT_EQ(config->rope.theta, 150000.0);
  EXPECT_EQ(config->rope.factor, 32.0);
  EXPECT_EQ(config->rope.beta_fast, 32.0);
  EXPECT_EQ(config->rope.beta_slow, 1.0);
  EXPECT_EQ(config->rope.original_max_position, 4096.0);
  EXPECT_FALSE(config->rope.truncate);
  EXPECT_EQ(config->rms_norm_eps, 1e-5F);
  EXPECT_EQ(config->swiglu_limit, 7.0F);
  EXPECT_TRUE(config->has_mxfp4_experts);
  EXPECT_THAT(config->eos_ids, ElementsAre(2));
  EXPECT_FALSE(load_config(kGolden + "tiny-bf16")->has_mxfp4_experts);
}

void expect_same(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.num_layers, b.num_layers);
  EXPECT_EQ(a.hidden, b.hidden);
  EXPECT_EQ(a.intermediate, b.intermediate);
  EXPECT_EQ(a.num_experts, b.num_experts);
  EXPECT_EQ(a.top_k, b.top_k);
  EXPECT_EQ(a.num_heads, b.num_heads);
  EXPECT_EQ(a.num_kv_heads, b.num_kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.vocab, b.vocab);
  EXPECT_EQ(a.window, b.window);
  EXPECT_EQ(a.is_window_layer, b.is_window_layer);
  EXPECT_EQ(a.max_position, b.max_position);
  EXPECT_EQ(a.rope.theta, b.rope.theta);
  EXPECT_EQ(a.rope.factor, b.rope.factor);
  EXPECT_EQ(a.rope.beta_fast, b.rope.beta_fast);
  EXPECT_EQ(a.rope.beta_slow, b.rope.beta_slow);
  EXPECT_EQ(a.rope.original_max_position, b.rope.original_max_position);
  EXPECT_EQ(a.rope.truncate, b.rope.truncate);
  EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
  EXPECT_EQ(a.swiglu_limit, b.swiglu_limit);
}

TEST(Config, EverySpellingGivesTheSame) {
  const ModelConfig want = load_config(kGolden + "tiny").value();
  expect_same(load_config(kGolden + "tiny-original").value(), want);
  const std::string newer = edited("tiny", "\"rope_theta\": 150000,\n \"rope_scaling\": {",
                                   "\"rope_parameters\": {\"rope_theta\": 150000.0,");
  expect_same(parse_config("c", newer).value(), want);
  const std::string outer_theta = tiny("rope_scaling", "rope_parameters");
  expect_same(parse_config("c", outer_theta).value(), want);
}

TEST(Config, RopeWithoutScalingIsPlain) {
  const std::string text = tiny("\"rope_scaling\"", "\"rope_scaling\": null, \"unused\"");
  EXPECT_EQ(parse_config("c", text).value().rope.factor, 1.0);
}

TEST(Config, MissingLayerTypesMeanAWindowOnEvenLayers) {
  const Result<ModelConfig> config = parse_config("c", tiny("layer_types", "unused"));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_THAT(config->is_window_layer, ElementsAre(true, false, true, false));
}

struct Refusal {
  std::string text;
  const char* fault;
  Code code = Code::kCorrupt;
};
std::ostream& operator<<(std::ostream& out, const Refusal& refusal) { return out << refusal.fault; }

class RefusedConfig : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedConfig, IsOneLineWithFieldWantAndFound) {
  const Result<ModelConfig> config = parse_config("m/config.json", GetParam().text);
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code(), GetParam().code);
  EXPECT_THAT(config.error().message(), AllOf(StartsWith("m/config.json: "),
                                              HasSubstr(GetParam().fault), Not(HasSubstr("\n"))));
}

std::string tiny_width(const std::string& value) {
  return tiny("\"hidden_size\": 96", "\"hidden_size\": " + value);
}
std::string tiny_eos(const std::string& value) {
  return tiny("\"eos_token_id\": 2", "\"eos_token_id\": " + value);
}

INSTANTIATE_TEST_SUITE_P(
    Numbers, RefusedConfig,
    testing::Values(
        Refusal{tiny_width("-96"), "hidden_size: want a whole number from 32 to 65536, found -96"},
        Refusal{tiny_width("0"), "found 0"}, Refusal{tiny_width("96.0"), "found 96.0"},
        Refusal{tiny_width("\"96\""), "found \"96\""}, Refusal{tiny_width("[96]"), "a list of 1"},
        Refusal{tiny_width("null"), "found nothing"}, Refusal{tiny_width("true"), "found true"},
        Refusal{tiny_width("4294967392"), "found 4294967392"},
        Refusal{tiny_width("18446744073709551615"), "found 18446744073709551615"},
        Refusal{tiny_width("1e400"), "not valid JSON"},
        Refusal{tiny_width("NaN"), "not valid JSON"},
        Refusal{tiny_width("100"), "hidden_size: want a multiple of 32, found 100"},
        Refusal{tiny("\"intermediate_size\": 64", "\"intermediate_size\": 65"),
                "intermediate_size: want a multiple of 32"},
        Refusal{tiny("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 2000000000"),
                "num_hidden_layers"},
        Refusal{tiny("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5"),
                "layer_types: want a list of num_hidden_layers = 5, found a list of 4"},
        Refusal{tiny("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"),
                "num_attention_heads: want a multiple of num_key_value_heads = 3, found 4"},
        Refusal{tiny("\"head_dim\": 32", "\"head_dim\": 33"), "head_dim: want an even number"},
        Refusal{tiny("\"num_local_experts\": 8", "\"num_local_experts\": 3"),
                "num_experts_per_tok: want at most the 3 experts, found 4"},
        Refusal{tiny("\"experts_per_token\": 4", "\"experts_per_token\": 3"),
                "experts_per_token: want num_experts_per_tok = 4, found 3"},
        Refusal{tiny("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0"), "rms_norm_eps"},
        Refusal{tiny("\"rope_theta\": 150000", "\"rope_theta\": -1"), "rope_theta"},
        Refusal{tiny("\"factor\": 32.0", "\"factor\": 0.5"), "rope_scaling.factor"},
        Refusal{tiny("\"factor\": 32.0", "\"factor\": \"x\""), "rope_scaling.factor"},
        Refusal{tiny("\"original_max_position_embeddings\": 4096,", ""),
                "rope_scaling.original_max_position_embeddings: want a whole number"},
        Refusal{tiny_eos("512"), "eos_token_id: want a whole number from 0 to 511, found 512"},
        Refusal{tiny_eos("[1, -1]"), "eos_token_id"}, Refusal{tiny_eos("{}"), "eos_token_id"}));

INSTANTIATE_TEST_SUITE_P(
    Forms, RefusedConfig,
    testing::Values(
        Refusal{"", "not valid JSON (0 bytes)"}, Refusal{"{", "not valid JSON"},
        Refusal{"[]", "want a JSON object, found a list of 0"},
        Refusal{"3", "want a JSON object, found 3"},
        Refusal{"{}", "model_type: want a string, found nothing"},
        Refusal{std::string(100000, '['), "nested deeper than 32"},
        Refusal{tiny("\"hidden_size\"", "\"hidden_size\": 96, \"hidden_size\""),
                "duplicate key \"hidden_size\""},
        Refusal{tiny("\"gpt_oss\"", "\"llama\""), "model_type: want \"gpt_oss\", found \"llama\"",
                Code::kUnsupported},
        Refusal{tiny("\"silu\"", "\"gelu\""), "hidden_act", Code::kUnsupported},
        Refusal{tiny("\"attention_bias\": true", "\"attention_bias\": false"), "attention_bias",
                Code::kUnsupported},
        Refusal{tiny("\"attention_bias\": true", "\"attention_bias\": 1"), "want true or false"},
        Refusal{tiny("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"),
                "tie_word_embeddings", Code::kUnsupported},
        Refusal{tiny("\"quant_method\": \"mxfp4\"", "\"quant_method\": \"fp8\""),
                "quantization_config.quant_method: want \"mxfp4\" or \"nvfp4\", found \"fp8\"",
                Code::kUnsupported},
        Refusal{tiny("\"rope_type\": \"yarn\"", "\"rope_type\": \"linear\""),
                "rope_scaling.rope_type: want yarn or default", Code::kUnsupported},
        Refusal{tiny("\"truncate\": false", "\"mscale\": 1.0"), "rope_scaling.mscale",
                Code::kUnsupported},
        Refusal{tiny("\"rope_theta\"", "\"rope_parameters\": {}, \"rope_theta\""),
                "rope_scaling: want no such field beside rope_parameters"},
        Refusal{tiny("\"rope_scaling\": {", "\"rope_scaling\": 7, \"unused\": {"),
                "rope_scaling: want an object, found 7"},
        Refusal{tiny("\"sliding_attention\"", "\"linear_attention\""), "layer_types"},
        Refusal{edited("tiny-original", "\"rope_ntk_beta\": 32", "\"x\": 1"),
                "rope_ntk_beta: want a number"},
        Refusal{edited("tiny-original", "\"num_experts\": 8", "\"num_experts\": 2"),
                "experts_per_token: want at most the 2 experts"}));

TEST(Config, MissingFileIsNotFoundByName) {
  const Status status = load_config("/nonexistent").error();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("/nonexistent/config.json"));
}

class GenerationConfig : public testing::Test {
 protected:
  Result<GenerationDefaults> load(const std::string& text) const {
    write_file(folder_ / "generation_config.json", text);
    return load_generation_defaults(folder_.path(), config_);
  }
  TemporaryFolder folder_;
  const ModelConfig config_ = load_config(kGolden + "tiny").value();
};

TEST_F(GenerationConfig, AbsentFileLeavesTheDefaults) {
  const GenerationDefaults defaults = load_generation_defaults(folder_.path(), config_).value();
  EXPECT_THAT(defaults.eos_ids, ElementsAre(2));
  EXPECT_EQ(defaults.bos_id, -1);
  EXPECT_TRUE(defaults.do_sample);
}

TEST_F(GenerationConfig, FieldsTakePrecedence) {
  const Result<GenerationDefaults> defaults = load(
      R"({"eos_token_id":[7,8],"bos_token_id":3,"pad_token_id":null,"temperature":0.5,"top_p":0.9,)"
      R"("top_k":40,"min_p":0.05,"repetition_penalty":1.1,"do_sample":false,"other":[1]})");
  ASSERT_TRUE(defaults.has_value()) << defaults.error().message();
  EXPECT_THAT(defaults->eos_ids, ElementsAre(7, 8));
  EXPECT_EQ(defaults->bos_id, 3);
  EXPECT_EQ(defaults->pad_id, -1);
  EXPECT_EQ(defaults->temperature, 0.5F);
  EXPECT_EQ(defaults->top_p, 0.9F);
  EXPECT_EQ(defaults->top_k, 40);
  EXPECT_EQ(defaults->min_p, 0.05F);
  EXPECT_EQ(defaults->repetition_penalty, 1.1F);
  EXPECT_FALSE(defaults->do_sample);
}

TEST_F(GenerationConfig, BadFieldsAreNamed) {
  for (const char* text :
       {R"({"eos_token_id":512})", R"({"eos_token_id":"2"})", R"({"bos_token_id":-1})",
        R"({"temperature":-0.1})", R"({"temperature":"1"})", R"({"top_p":1.5})", R"({"top_p":0})",
        R"({"top_k":-1})", R"({"top_k":1.5})", R"({"min_p":2})", R"({"repetition_penalty":0})",
        R"({"do_sample":1})"}) {
    const Result<GenerationDefaults> defaults = load(text);
    ASSERT_FALSE(defaults.has_value()) << text;
    EXPECT_EQ(defaults.error().code(), Code::kCorrupt);
    const std::string field = std::string(text).substr(2, std::string(text).find(':') - 3);
    EXPECT_THAT(defaults.error().message(),
                AllOf(HasSubstr("generation_config.json: field " + field), HasSubstr("found ")));
  }
}

}  // namespace
}  // namespace nibble::model
