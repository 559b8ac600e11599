#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "unit/cli/fake_host.h"

namespace nibble::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Score : public ::testing::Test {
 protected:
  Score() {
    world_.engine.score_result.tokens = {
        {.id = 65, .logprob = std::numeric_limits<float>::quiet_NaN()},
        {.id = 10, .logprob = -0.5F, .top = {{10, -0.5F}, {66, -1.25F}}}};
    world_.engine.score_result.perplexity = 1.6487;
  }
  World world_;
};

TEST_F(Score, JsonHasANullFirstLogprob) {
  const Ran ran = world_.run({"score", "--ids", "65,10", "--top", "2", "--json"});
  EXPECT_EQ(ran.err, "");
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["ids"], nlohmann::json({65, 10}));
  EXPECT_EQ(json["logprobs"], nlohmann::json({nullptr, -0.5}));
  EXPECT_EQ(json["perplexity"], 1.6487);
  EXPECT_EQ(json["top"][0], nullptr);
  EXPECT_EQ(json["top"][1][1]["id"], 66);
  EXPECT_EQ(json["top"][1][1]["logprob"], -1.25);
  EXPECT_EQ(world_.engine.scores.at(0).top, 2);
  EXPECT_THAT(world_.engine.scores.at(0).ids, ElementsAre(65, 10));
}

TEST_F(Score, OneIdHasNoPerplexity) {
  world_.engine.score_result.tokens.resize(1);
  world_.engine.score_result.perplexity = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(world_.run({"score", "--ids", "65", "--json"}).out, HasSubstr("\"perplexity\":null"));
}

TEST_F(Score, TheTableShowsTokensAndTheBestAlternatives) {
  EXPECT_EQ(world_.run({"score", "--ids", "65,10", "--top", "2"}).out,
            "position  id  token  logprob  most likely\n"
            "       0  65  \"A\"          -\n"
            "       1  10  \"\\n\"   -0.5000  \"\\n\" -0.5000  \"B\" -1.2500\n"
            "\n2 tokens, perplexity 1.6487\n");
}

TEST_F(Score, NeedsNoTokenizerForIds) {
  world_.engine.info.has_tokenizer = false;
  EXPECT_THAT(world_.run({"score", "--ids", "65,10"}).out, Not(HasSubstr("token  ")));
}

TEST_F(Score, TakesTextFilesAndStandardInputAsTheyAre) {
  std::ofstream(world_.path("text")) << "file\n";
  world_.input = "piped\n";
  world_.run({"score", "-p", "given"});
  world_.run({"score", "-f", world_.path("text"), "--special"});
  world_.run({"score"});
  EXPECT_THAT(world_.engine.encoded,
              ElementsAre(Pair("given", false), Pair("file\n", true), Pair("piped\n", false)));
}

TEST_F(Score, RefusesAnEmptyText) {
  const Ran ran = world_.run({"score", "-p", ""});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_TRUE(world_.engine.scores.empty());
}

TEST_F(Score, WritesLogitsAsSafetensors) {
  world_.engine.logits = {{1, 2, 3}, {4, 5, 6}};
  const std::string path = world_.path("out.safetensors");
  ASSERT_EQ(world_.run({"score", "--ids", "65,10", "--logits", path}).exit_code, 0);
  const std::string file = bytes_of(path);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  EXPECT_EQ(length % 8, 0U);
  const auto header = nlohmann::json::parse(file.substr(8, length));
  EXPECT_EQ(header["logits"]["dtype"], "F32");
  EXPECT_EQ(header["logits"]["shape"], nlohmann::json({2, 3}));
  EXPECT_EQ(header["logits"]["data_offsets"], nlohmann::json({0, 24}));
  ASSERT_EQ(file.size(), 8 + length + 24);
  float values[6];
  std::memcpy(values, file.data() + 8 + length, sizeof values);
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(Score, LeavesNoLogitsOfAFailedRun) {
  const std::string path = world_.path("out.safetensors");
  world_.engine.logits = {{1, 2, 3}};  // a row is missing
  EXPECT_EQ(world_.run({"score", "--ids", "65,10", "--logits", path}).exit_code, 1);
  world_.engine.score_status = Status(Code::kInternal, "NaN logits in row 1");
  EXPECT_EQ(world_.run({"score", "--ids", "65,10", "--logits", path}).exit_code, 1);
  EXPECT_EQ(world_.run({"score", "--ids", "1", "--logits", "/nowhere/x"}).exit_code, 1);
  EXPECT_TRUE(std::filesystem::is_empty(world_.folder()));
}

TEST(Tokenize, GivesIdsThatCanBeTypedBack) {
  World world;
  EXPECT_EQ(world.run({"tokenize", "-p", "Hi"}).out, "72,105\n");
  EXPECT_EQ(world.run({"tokenize", "--ids", "72,105"}).out, "Hi");
  world.input = "72,105\n";
  EXPECT_EQ(world.run({"tokenize", "--decode"}).out, "Hi");
  world.out_is_terminal = true;
  EXPECT_EQ(world.run({"tokenize", "--ids", "72,105"}).out, "Hi\n");
}

TEST(Tokenize, JsonHasTokensAndCount) {
  World world;
  EXPECT_EQ(world.run({"tokenize", "-p", "Hi", "--json"}).out,
            "{\"ids\":[72,105],\"tokens\":[\"H\",\"i\"],\"count\":2}\n");
  EXPECT_EQ(world.run({"tokenize", "--ids", "72", "--json"}).out,
            "{\"text\":\"H\",\"ids\":[72],\"count\":1}\n");
}

TEST(Tokenize, SpecialSpellingsAreTextUnlessAskedFor) {
  World world;
  world.run({"tokenize", "-p", "a"});
  world.run({"tokenize", "-p", "a", "--special"});
  EXPECT_THAT(world.engine.encoded, ElementsAre(Pair("a", false), Pair("a", true)));
}

class Inspect : public ::testing::Test {
 protected:
  Inspect() {
    commands::InspectReport& report = world_.engine.report;
    report.folder = world_.folder();
    report.architecture = "GptOssForCausalLM";
    report.config = {{"hidden_size", "320"}, {"vocab_size", "4096"}};
    report.tensors = {{"model.layers.0.mlp.w", "BF16", "[2, 3]", 12, "a.safetensors"},
                      {"model.layers.11.mlp.w", "BF16", "[2, 3]", 12, "b.safetensors"},
                      {"lm_head.weight", "BF16", "[4, 3]", 24, "b.safetensors"}};
    report.parameters = 22'600'000;
  }
  World world_;
};

TEST_F(Inspect, GroupsTensorsThatDifferInTheLayerOnly) {
  const Ran ran = world_.run({"inspect"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "");
  EXPECT_THAT(ran.out, HasSubstr("model.layers.*.mlp.w  BF16  [2, 3]   24 B      2\n"));
  EXPECT_THAT(ran.out, HasSubstr("hidden_size  320\n"));
  EXPECT_THAT(ran.out, HasSubstr("22.6 M"));
  EXPECT_THAT(ran.out, HasSubstr("\nno problems\n"));
}

TEST_F(Inspect, ListsEveryTensorWhenAsked) {
  const Ran ran = world_.run({"inspect", "--tensors"});
  EXPECT_THAT(ran.out, HasSubstr("model.layers.11.mlp.w  BF16  [2, 3]   12 B  b.safetensors\n"));
}

TEST_F(Inspect, ListsAllProblemsAndEndsWithThree) {
  world_.engine.report.problems = {"a is missing", "b has a wrong shape"};
  const Ran ran = world_.run({"inspect"});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.out, HasSubstr("2 problems\n  a is missing\n  b has a wrong shape\n"));
  EXPECT_EQ(ran.err, "nibble inspect: " + world_.folder() +
                         ": 2 problems, listed above; the first: a is missing\n");
}

TEST_F(Inspect, JsonHasEverything) {
  world_.engine.report.problems = {"a is missing"};
  const Ran ran = world_.run({"inspect", "--json"});
  EXPECT_EQ(ran.exit_code, 3);
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["tensors"].size(), 3U);
  EXPECT_EQ(json["config"]["hidden_size"], "320");
  EXPECT_EQ(json["problems"], nlohmann::json({"a is missing"}));
}

TEST_F(Inspect, ListsKernelsInsteadOfAModel) {
  world_.engine.capabilities.kernels = {
      {"gemm", "gemm_ref", "scalar", "any", true, true, true, ""},
      {"gemm", "gemm_x", "cuda", "sm_100", true, false, false, "no usable GPU"}};
  EXPECT_EQ(world_.run({"inspect", "--kernels"}).out,
            "family  kernel    backend  needs   runs here  verified\n"
            "gemm    gemm_ref  scalar   any     yes        yes\n"
            "gemm    gemm_x    cuda     sm_100  no         no\n");
  const auto json = nlohmann::json::parse(world_.run({"inspect", "--kernels", "--json"}).out);
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[1]["name"], "gemm_x");
  EXPECT_EQ(json[1]["runnable"], false);
  EXPECT_EQ(json[1]["verified"], false);
  EXPECT_EQ(json[1]["reason"], "no usable GPU");
  const Ran both = world_.run({"inspect", "--kernels", "some-model"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("takes no model, got some-model"));
  EXPECT_EQ(world_.run({"inspect", "--kernels", "--tensors"}).exit_code, 2);
}

TEST(MakeModel, PassesItsFlags) {
  World world;
  const Ran ran = world.run({"make-model", "--preset", "tiny", "--layers", "3", "--seed", "9",
                             "--tokenizer", "tok", "--max-shard-size", "200k", world.path("out")});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const commands::MakeModelOptions& options = world.engine.made.at(0);
  EXPECT_EQ(options.preset, "tiny");
  EXPECT_EQ(options.num_layers, 3);
  EXPECT_EQ(options.seed, 9U);
  EXPECT_EQ(options.tokenizer_folder, "tok");
  EXPECT_EQ(options.max_shard_bytes, 200'000);
  EXPECT_EQ(options.destination, world.path("out"));
}

TEST(MakeModel, ShowsTenthsAsLinesAndABarOnATerminal) {
  World world;
  const Ran plain = world.run({"make-model", "--preset", "tiny", "out"});
  EXPECT_THAT(plain.out, HasSubstr("writing 10 %: 10.0 MB of 100 MB\nwriting 20 %"));
  EXPECT_THAT(plain.out, HasSubstr("wrote out: 100 MB in "));
  EXPECT_EQ(plain.err, "");
  world.out_is_terminal = true;
  EXPECT_THAT(world.run({"make-model", "--preset", "tiny", "out"}).out,
              HasSubstr("\rwriting [....."));
}

TEST(MakeModel, DryRunPrintsNamesShapesAndBytesAndNeedsNoFolder) {
  World world;
  world.engine.plan = {.tensors = {{"a", "BF16", "[2, 3]", 12}, {"bb", "U8", "[7]", 7}},
                       .total_bytes = 1234,
                       .num_shards = 1};
  const Ran ran = world.run({"make-model", "--preset", "tiny", "--dry-run"});
  EXPECT_EQ(ran.out,
            "tensor  type  shape   bytes\n"
            "a       BF16  [2, 3]     12\n"
            "bb      U8    [7]         7\n"
            "\n2 tensors, 1234 bytes (1.23 kB) in 1 file\n");
}

TEST(MakeModel, ASmallDiskDoesNotFit) {
  World world;
  world.engine.make_status = Status(Code::kExhausted, "out: want 100 bytes, found 10 free");
  const Ran ran = world.run({"make-model", "--preset", "tiny", "out"});
  EXPECT_EQ(ran.exit_code, 4);
  EXPECT_EQ(ran.err, "nibble make-model: out: want 100 bytes, found 10 free\n");
}

}  // namespace
}  // namespace nibble::cli
