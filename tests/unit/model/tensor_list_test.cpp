#include "model/tensor_list.h"

#include <gtest/gtest.h>

namespace nibble::model {
namespace {

const std::string kRoot = NIBBLE_SOURCE_DIR;

class EverySpelling : public testing::TestWithParam<const char*> {};

TEST_P(EverySpelling, MatchesItsConfig) {
  const std::string folder = kRoot + "/" + GetParam();
  const Result<ModelConfig> config = load_config(folder);
  ASSERT_TRUE(config.has_value()) << config.error().message();
  const Result<weights::Checkpoint> checkpoint = weights::Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
  const Result<ExpertFormat> experts = detect_expert_format(*config, *checkpoint);
  ASSERT_TRUE(experts.has_value()) << experts.error().message();
  const std::vector<weights::TensorSpec> list = tensor_list(*config, *experts);
  const weights::MatchReport report = weights::match(list, *checkpoint);
  EXPECT_TRUE(report.ok()) << report.summary(folder);
  EXPECT_EQ(list.size(), checkpoint->tensors().size());
  EXPECT_EQ(*experts == ExpertFormat::kBf16Transposed, folder.find("bf16") != std::string::npos);
  EXPECT_EQ(config->naming == Naming::kOpenAi, folder.find("original") != std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Folders, EverySpelling,
                         testing::Values("tests/golden/tiny", "tests/golden/odd",
                                         "tests/golden/tiny-bf16", "tests/golden/tiny-original",
                                         "models/demo"));

// Counts and sizes published with the two gpt-oss models.
ModelConfig gpt_oss(std::int32_t layers, std::int32_t experts) {
  ModelConfig config;
  config.num_layers = layers;
  config.hidden = config.intermediate = 2880;
  config.num_experts = experts;
  config.top_k = 4;
  config.num_heads = config.head_dim = 64;
  config.num_kv_heads = 8;
  config.vocab = 201088;
  return config;
}

TEST(TensorList, HasThePublishedNumberOfTensors) {
  EXPECT_EQ(tensor_list(gpt_oss(24, 32), ExpertFormat::kMxfp4).size(), 459U);
  EXPECT_EQ(tensor_list(gpt_oss(36, 128), ExpertFormat::kMxfp4).size(), 687U);
}

TEST(TensorList, FollowsThePublishedOrder) {
  const auto list = tensor_list(gpt_oss(1, 32), ExpertFormat::kMxfp4);
  EXPECT_EQ(list.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(list[list.size() - 2].name, "model.norm.weight");
  EXPECT_EQ(list.back().name, "lm_head.weight");
}

TEST(TensorName, MapsToTheOriginalNames) {
  EXPECT_EQ(tensor_name("model.layers.3.mlp.router.weight", Naming::kOpenAi),
            "block.3.mlp.gate.weight");
  EXPECT_EQ(tensor_name("model.layers.11.self_attn.k_proj.bias", Naming::kOpenAi),
            "block.11.attn.qkv.bias");
  EXPECT_EQ(tensor_name("lm_head.weight", Naming::kOpenAi), "unembedding.weight");
  EXPECT_EQ(tensor_name("lm_head.weight", Naming::kHuggingFace), "lm_head.weight");
}

// Kernels read them where they are mapped: another type is refused, never reinterpreted.
TEST(TensorList, BiasesOfExpertsAreBf16AndNothingElse) {
  int num_found = 0;
  for (const ExpertFormat format :
       {ExpertFormat::kMxfp4, ExpertFormat::kBf16Transposed, ExpertFormat::kNvfp4}) {
    for (const weights::TensorSpec& spec : tensor_list(gpt_oss(2, 32), format)) {
      if (spec.name.ends_with("_proj_bias")) {
        EXPECT_EQ(spec.dtypes, std::vector<DType>{DType::kBF16}) << spec.name;
        ++num_found;
      }
    }
  }
  EXPECT_EQ(num_found, 3 * 2 * 2);
}

}  // namespace
}  // namespace nibble::model
