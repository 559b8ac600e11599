#include "api/commands/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/folder.h"
#include "support/safetensors_bytes.h"

namespace nibble::commands {
namespace {

namespace fs = std::filesystem;

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing_support::read_file;
using testing_support::TemporaryFolder;
using testing_support::write_file;

const std::string kGolden = std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/";

TEST(Inspect, CountsBytesAndParameters) {
  const InspectReport report = inspect(kGolden + "tiny").value();
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.architecture, "gpt_oss");
  EXPECT_EQ(report.naming, "hugging face");
  EXPECT_EQ(report.quantisation, "mxfp4");
  EXPECT_EQ(report.file_bytes,
            static_cast<std::int64_t>(fs::file_size(kGolden + "tiny/model.safetensors")));
  // By hand. A layer's experts: 8 * (128 * 96 + 96 * 64) = 147,456 values and 8 * (128 + 96) =
  // 1,792 biases. The rest of a layer: norms 2 * 96; q 128 * 97, k and v 64 * 97 each; o
  // 96 * 129; sinks 4; router 8 * 97. The model: 2 * 512 * 96 + 96.
  const std::int64_t dense = 192 + 256 * 97 + 96 * 129 + 4 + 8 * 97;
  const std::int64_t experts = 147456 + 1792;
  EXPECT_EQ(report.parameters, 4 * (dense + experts) + 98304 + 96);
  EXPECT_EQ(report.active_parameters, 4 * (dense + experts / 2) + 49152 + 96 + 96);
  EXPECT_EQ(report.expert_bytes, 4 * (147456 / 2 + 147456 / 32 + 2 * 1792));
  EXPECT_EQ(report.dense_bytes, 2 * (4 * dense + 98304 + 96));
  ASSERT_THAT(report.tensors, SizeIs(79));
  EXPECT_EQ(report.tensors[0].name, "model.embed_tokens.weight");
  EXPECT_EQ(report.tensors[0].dtype, "bf16");
  EXPECT_EQ(report.tensors[0].shape, "[512, 96]");
  EXPECT_EQ(report.tensors[0].bytes, 98304);
  EXPECT_EQ(report.tensors[0].file, "model.safetensors");
}

TEST(Inspect, EverySpellingOfTheSameModelCountsTheSame) {
  const std::int64_t parameters = inspect(kGolden + "tiny")->parameters;
  const InspectReport bf16 = inspect(kGolden + "tiny-bf16").value();
  EXPECT_EQ(bf16.parameters, parameters);
  EXPECT_EQ(bf16.quantisation, "none (bf16)");
  EXPECT_THAT(bf16.problems, IsEmpty());
  const InspectReport original = inspect(kGolden + "tiny-original").value();
  EXPECT_EQ(original.parameters, parameters);
  EXPECT_EQ(original.naming, "openai");
  EXPECT_THAT(original.problems, IsEmpty());
}

TEST(Inspect, EveryProblemIsListed) {
  const TemporaryFolder folder;
  fs::copy_file(kGolden + "tiny/model.safetensors", folder / "model.safetensors");
  std::string config = read_file(kGolden + "tiny/config.json");
  config.replace(config.find("\"hidden_size\": 96"), 17, "\"hidden_size\": 64");
  write_file(folder / "config.json", config);
  write_file(folder / "generation_config.json", "{\"top_k\": -1}");
  const InspectReport report = inspect(folder.path()).value();
  // Of 19 tensors in a layer, sinks, the biases of q, k, v, router and gate_up keep their shape.
  EXPECT_THAT(report.problems, SizeIs(1 + 4 * (19 - 6) + 3));
  EXPECT_THAT(report.problems, Contains(HasSubstr("top_k")));
  EXPECT_THAT(report.problems, Contains("model.norm.weight in model.safetensors: want shape [64], "
                                        "found [96]"));
}

TEST(Inspect, FilesOfAnInvalidFolderAreReadOneByOne) {
  const TemporaryFolder folder;
  const std::string one = testing_support::safetensors_bytes(
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "data");
  write_file(folder / "model-00001-of-00003.safetensors", one);
  write_file(folder / "model-00002-of-00003.safetensors", one.substr(0, one.size() - 1));
  write_file(folder / "model.safetensors.index.json",
             R"({"weight_map":{"a":"model-00001-of-00003.safetensors",)"
             R"("b":"model-00002-of-00003.safetensors","c":"model-00003-of-00003.safetensors"}})");
  const InspectReport report = inspect(folder.path()).value();
  ASSERT_THAT(report.tensors, SizeIs(1));
  EXPECT_EQ(report.tensors[0].name, "a");
  EXPECT_THAT(report.problems,
              ElementsAre(HasSubstr("config.json"), HasSubstr("model-00003-of-00003.safetensors"),
                          HasSubstr("cut short: tensor a")));
}

TEST(Inspect, NothingToReadIsAStatus) {
  const TemporaryFolder folder;
  EXPECT_EQ(inspect("/nonexistent").error().code(), Code::kNotFound);
  EXPECT_EQ(inspect(folder.path()).error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace nibble::commands
