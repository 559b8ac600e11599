#include "api/commands/make_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "formats/bf16.h"
#include "model/config.h"
#include "model/random_weights.h"
#include "model/tensor_list.h"
#include "support/folder.h"

namespace nibble::commands {
namespace {

namespace fs = std::filesystem;

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::read_file;
using testing_support::TemporaryFolder;
using testing_support::write_file;

const std::string kDemo = std::string(NIBBLE_SOURCE_DIR) + "/models/demo";

MakeModelOptions tiny_into(const std::string& folder) {
  MakeModelOptions options;
  options.preset = "tiny";
  options.destination = folder;
  return options;
}

// The checkpoint in `folder` is one that our loader takes whole.
void expect_loads(const std::string& folder) {
  const Result<model::ModelConfig> config = model::load_config(folder);
  ASSERT_TRUE(config.has_value()) << config.error().message();
  const auto defaults = model::load_generation_defaults(folder, *config);
  ASSERT_TRUE(defaults.has_value()) << defaults.error().message();
  const auto checkpoint = weights::Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
  const auto report =
      weights::match(model::tensor_list(*config, model::ExpertFormat::kMxfp4), *checkpoint);
  EXPECT_TRUE(report.ok()) << report.summary(folder);
}

TEST(MakeModel, WritesACheckpointThatLoads) {
  const TemporaryFolder folder;
  std::int64_t done = 0;
  std::int64_t total = 0;
  const Status status =
      make_model(tiny_into(folder / "new/model"), [&](std::int64_t d, std::int64_t t) {
        done = d;
        total = t;
        return true;
      });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_GT(total, 0);
  EXPECT_EQ(done, total);
  expect_loads(folder / "new/model");
}

TEST(MakeModel, PlanSaysWhatIsWritten) {
  const TemporaryFolder folder;
  MakeModelOptions options = tiny_into(folder / "m");
  options.max_shard_bytes = 500'000;
  options.num_layers = 3;
  const MakeModelPlan plan = plan_model(options).value();
  ASSERT_TRUE(make_model(options, nullptr).ok());
  expect_loads(folder / "m");
  std::int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder / "m")) {
    bytes += static_cast<std::int64_t>(entry.file_size());
  }
  EXPECT_EQ(plan.total_bytes, bytes);
  const auto checkpoint = weights::Checkpoint::open(folder / "m");
  EXPECT_EQ(plan.num_shards, static_cast<std::int64_t>(checkpoint->num_files()));
  EXPECT_GT(plan.num_shards, 1);
  EXPECT_EQ(plan.tensors.size(), checkpoint->tensors().size());
  EXPECT_EQ(model::load_config(folder / "m")->num_layers, 3);
}

// Published: 20.91e9 and 116.83e9 parameters; expert bytes 10.15 GB and 60.91 GB, the rest 3.61 GB
// and 4.33 GB.
TEST(MakeModel, PublishedShapesHaveThePublishedSizes) {
  MakeModelOptions options;
  options.preset = "gpt-oss-20b";
  const MakeModelPlan small = plan_model(options).value();
  EXPECT_EQ(small.tensors.size(), 459U);
  EXPECT_NEAR(static_cast<double>(small.total_bytes), 13.76e9, 0.01e9);
  options.preset = "gpt-oss-120b";
  const MakeModelPlan large = plan_model(options).value();
  EXPECT_EQ(large.tensors.size(), 687U);
  EXPECT_NEAR(static_cast<double>(large.total_bytes), 65.24e9, 0.01e9);
  options.num_layers = 2;
  EXPECT_LT(plan_model(options)->total_bytes, 6e9);
}

TEST(MakeModel, InterruptedLeavesTheDiskAsItWas) {
  for (const bool is_there : {false, true}) {
    const TemporaryFolder folder;
    if (is_there) {
      fs::create_directory(folder / "m");
    }
    int num_calls = 0;
    const Status status = make_model(tiny_into(folder / "m"),
                                     [&](std::int64_t, std::int64_t) { return ++num_calls < 5; });
    EXPECT_EQ(status.code(), Code::kCancelled);
    EXPECT_THAT(status.message(), HasSubstr("nothing is left of them"));
    EXPECT_EQ(fs::exists(folder / "m"), is_there);
    EXPECT_TRUE(!is_there || fs::is_empty(folder / "m"));
  }
}

TEST(MakeModel, SameSeedSameBytesOtherSeedOthers) {
  const TemporaryFolder folder;
  MakeModelOptions options = tiny_into(folder / "a");
  ASSERT_TRUE(make_model(options, nullptr).ok());
  options.destination = folder / "b";
  ASSERT_TRUE(make_model(options, nullptr).ok());
  options.destination = folder / "c";
  options.seed = 1;
  ASSERT_TRUE(make_model(options, nullptr).ok());
  const std::string first = read_file(folder / "a/model.safetensors");
  EXPECT_EQ(first, read_file(folder / "b/model.safetensors"));
  EXPECT_NE(first, read_file(folder / "c/model.safetensors"));
}

TEST(MakeModel, FitsTheDemoTokenizerAndTakesItsIds) {
  const TemporaryFolder folder;
  MakeModelOptions options = tiny_into(folder / "m");
  options.tokenizer_folder = kDemo;
  const Status status = make_model(options, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(read_file(folder / "m/tokenizer.json"), read_file(kDemo + "/tokenizer.json"));
  const auto defaults =
      model::load_generation_defaults(folder / "m", model::load_config(folder / "m").value());
  EXPECT_THAT(defaults->eos_ids, ElementsAre(4089, 4088, 4095));
}

TEST(MakeModel, TokenizerWithTooManyIdsIsRefused) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "tokenizer");
  std::string text = read_file(kDemo + "/tokenizer.json");
  const std::size_t place = text.rfind("\"id\": 4095");
  const std::size_t compact = text.rfind("\"id\":4095");
  ASSERT_TRUE(place != std::string::npos || compact != std::string::npos);
  text.replace(place != std::string::npos ? place : compact, place != std::string::npos ? 10 : 9,
               "\"id\":4096");
  write_file(folder / "tokenizer/tokenizer.json", text);
  MakeModelOptions options = tiny_into(folder / "m");
  options.tokenizer_folder = folder / "tokenizer";
  const Status status = make_model(options, nullptr);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("4096"));
  EXPECT_FALSE(fs::exists(folder / "m"));
}

TEST(MakeModel, BadRequestsAreRefusedWithNumbers) {
  const TemporaryFolder folder;
  MakeModelOptions options = tiny_into(folder / "m");
  options.preset = "gpt-5";
  EXPECT_THAT(make_model(options, nullptr).message(),
              HasSubstr("tiny, gpt-oss-20b, gpt-oss-120b, found \"gpt-5\""));
  options.preset = "tiny";
  options.num_layers = -1;
  EXPECT_EQ(plan_model(options).error().code(), Code::kInvalidArgument);
  options.num_layers = 0;
  options.tokenizer_folder = folder / "none";
  EXPECT_EQ(make_model(options, nullptr).code(), Code::kNotFound);
  EXPECT_FALSE(fs::exists(folder / "m"));
}

TEST(MakeModel, FolderWithFilesIsRefused) {
  const TemporaryFolder folder;
  write_file(folder / "keep", "me");
  const Status status = make_model(tiny_into(folder.path()), nullptr);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(folder.path()));
  EXPECT_EQ(read_file(folder / "keep"), "me");
}

std::vector<std::byte> whole(const weights::TensorSpec& spec, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  EXPECT_TRUE(model::fill_random(7, spec, 0, out).ok());
  return out;
}

TEST(RandomWeights, RangesAreThePiecesOfTheWhole) {
  const std::vector<weights::TensorSpec> specs = {
      {"model.layers.0.self_attn.q_proj.weight", {64, 64}, {DType::kBF16}},
      {"model.layers.0.mlp.experts.down_proj_blocks", {1, 16, 32, 16}, {DType::kU8}},
      {"model.layers.0.mlp.experts.down_proj_scales", {1, 256, 32}, {DType::kU8}}};
  for (const weights::TensorSpec& spec : specs) {
    const std::vector<std::byte> all = whole(spec, 8190);
    std::vector<std::byte> pieces(all.size());
    ASSERT_TRUE(model::fill_random(7, spec, 4096, std::span(pieces).subspan(4096)).ok());
    ASSERT_TRUE(model::fill_random(7, spec, 0, std::span(pieces).first(4096)).ok());
    EXPECT_EQ(all, pieces) << spec.name;
  }
}

// Mean and deviation of n draws are within 5 standard errors of what the recipe says.
TEST(RandomWeights, DenseTensorsHaveTheWidthOfTheirFanIn) {
  const weights::TensorSpec spec = {
      "model.layers.0.self_attn.q_proj.weight", {512, 256}, {DType::kBF16}};
  const std::vector<std::byte> bytes = whole(spec, 512 * 256 * 2);
  const auto* values = reinterpret_cast<const formats::Bf16*>(bytes.data());
  const double count = 512.0 * 256.0;
  double sum = 0.0;
  double squares = 0.0;
  for (int i = 0; i < 512 * 256; ++i) {
    const double value = formats::bf16_to_f32(values[i]);
    sum += value;
    squares += value * value;
  }
  const double want = 1.0 / 16.0;
  EXPECT_NEAR(sum / count, 0.0, 5 * want / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), want, 5 * want / std::sqrt(2 * count) + want / 256);
}

TEST(RandomWeights, ScalesTakeThreeExponentsAndNeverNan) {
  const weights::TensorSpec spec = {
      "model.layers.0.mlp.experts.gate_up_proj_scales", {1, 1024, 90}, {DType::kU8}};
  std::set<int> found;
  for (const std::byte byte : whole(spec, 1024 * 90)) {
    found.insert(std::to_integer<int>(byte));
  }
  // 1 / sqrt(2880) over the code rms 2.93 and the scale rms 1.32: 2^-7.7, and its neighbours.
  EXPECT_THAT(found, ElementsAre(127 - 9, 127 - 8, 127 - 7));
}

}  // namespace
}  // namespace nibble::commands
