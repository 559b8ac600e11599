// The public engine on the tiny checkpoint, which has no tokenizer: token ids in, token ids out.
#include "nibble/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "api/kernel_table.h"
#include "support/folder.h"
#include "weights/safetensors.h"

namespace nibble {
namespace {

using testing::HasSubstr;

const std::string kTiny = NIBBLE_SOURCE_DIR "/tests/golden/tiny";

Engine load(const std::string& folder) {
  return *Engine::load({.model = folder, .num_threads = 2, .max_model_len = 256});
}

Request request(std::vector<std::int32_t> ids, std::int32_t max_tokens) {
  Request out{.prompt = TokenPrompt{std::move(ids)}, .max_tokens = max_tokens};
  out.sampling.temperature = 0.0F;
  return out;
}

TEST(Engine, GeneratesTokensAndSaysWhyItEnded) {
  Engine engine = load(kTiny);
  EXPECT_EQ(engine.info().max_model_len, 256);
  EXPECT_FALSE(engine.info().has_tokenizer);
  Request wanted = request({5, 6, 7}, 6);
  wanted.ignore_eos = true;
  std::vector<std::int32_t> streamed;
  const auto response = engine.generate(wanted, [&](const Delta& delta) {
    for (const TokenLogprob& token : delta.tokens) {
      streamed.push_back(token.id);
    }
    return true;
  });
  ASSERT_TRUE(response.has_value()) << response.error().message();
  EXPECT_EQ(response->ids.size(), 6U);
  EXPECT_EQ(streamed, response->ids);
  EXPECT_EQ(response->finish_reason, FinishReason::kLength);
  EXPECT_EQ(response->usage.prompt_tokens, 3);
  EXPECT_EQ(response->usage.completion_tokens, 6);
  wanted.stop_token_ids = {response->ids[2]};
  const auto stopped = engine.generate(wanted);
  ASSERT_TRUE(stopped.has_value());
  EXPECT_EQ(stopped->finish_reason, FinishReason::kStop);
  EXPECT_LE(stopped->ids.size(), 3U);
  EXPECT_EQ(stopped->ids.back(), response->ids[2]);
}

// Every family that a forward pass on the processor needs, by rows that run here.
TEST(Engine, NamesTheKernelsThatComputedAnAnswer) {
  Engine engine = load(kTiny);
  const auto response = engine.generate(request({5, 6, 7}, 3));
  ASSERT_TRUE(response.has_value());
  std::set<std::string> families;
  for (const std::string& name : response->kernels) {
    for (const KernelRow& row : kernel_rows()) {
      if (name == row.info.name) {
        EXPECT_TRUE(kernels::runs_here(row.info)) << name;
        EXPECT_TRUE(families.insert(row.family).second) << "two of " << row.family;
      }
    }
  }
  EXPECT_EQ(families.size(), response->kernels.size());
  EXPECT_THAT(families, testing::ElementsAre("attention", "gather_rows", "gemm", "moe", "rms_norm",
                                             "rope_store", "top_k"));
  EXPECT_THAT(Engine::load({.model = kTiny, .max_model_len = 64, .use_reference_kernels = true})
                  ->generate(request({5}, 1))
                  ->kernels,
              testing::ElementsAre("reference"));
}

TEST(Engine, ReportsTheSeedThatRepeatsTheAnswer) {
  Engine engine = load(kTiny);
  Request wanted = request({1, 2}, 20);
  wanted.sampling.temperature = 1.0F;
  wanted.ignore_eos = true;
  const auto first = engine.generate(wanted);
  ASSERT_TRUE(first.has_value());
  wanted.sampling.seed = first->seed;
  EXPECT_EQ(engine.generate(wanted)->ids, first->ids);
}

TEST(Engine, ScoreAgreesWithTheLogprobsOfGeneration) {
  Engine engine = load(kTiny);
  Request wanted = request({5, 6, 7}, 8);
  wanted.ignore_eos = true;
  wanted.top_logprobs = 2;
  const auto response = engine.generate(wanted);
  ASSERT_TRUE(response.has_value());
  std::vector<std::int32_t> ids = {5, 6, 7};
  ids.insert(ids.end(), response->ids.begin(), response->ids.end());
  const auto score = engine.score({.ids = ids, .top = 2});
  ASSERT_TRUE(score.has_value());
  ASSERT_EQ(score->tokens.size(), ids.size());
  EXPECT_TRUE(std::isnan(score->tokens[0].logprob));
  double sum = 0.0;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    EXPECT_EQ(score->tokens[i].id, ids[i]);
    sum += score->tokens[i].logprob;
  }
  for (std::size_t i = 0; i < response->ids.size(); ++i) {
    EXPECT_EQ(score->tokens[3 + i].logprob, response->logprobs[i].logprob);
    EXPECT_EQ(score->tokens[3 + i].top, response->logprobs[i].top);
  }
  EXPECT_NEAR(score->perplexity, std::exp(-sum / 10.0), 1e-9 * score->perplexity);
  EXPECT_TRUE(std::isnan(engine.score({.ids = {4}})->perplexity));
  EXPECT_FALSE(engine.score({.ids = {}}).has_value());
}

// The same numbers as `score`, whether or not the prompt was in the cache; the answer's sum as
// well.
TEST(Engine, PromptLogprobsAgreeWithScore) {
  Engine engine = load(kTiny);
  std::vector<std::int32_t> ids(150);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(i * 7 % 90);
  }
  const auto score = engine.score({.ids = ids, .top = 2});
  ASSERT_TRUE(score.has_value());
  Request wanted = request(ids, 4);
  wanted.ignore_eos = true;
  wanted.top_logprobs = 0;
  EXPECT_TRUE(engine.generate(wanted)->prompt_logprobs.empty());
  wanted.prompt_logprobs = 2;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto response = engine.generate(wanted);
    ASSERT_TRUE(response.has_value()) << response.error().message();
    ASSERT_EQ(response->prompt_logprobs.size(), ids.size());
    EXPECT_TRUE(std::isnan(response->prompt_logprobs[0].logprob));
    for (std::size_t i = 1; i < ids.size(); ++i) {
      EXPECT_EQ(response->prompt_logprobs[i].id, ids[i]);
      EXPECT_EQ(response->prompt_logprobs[i].logprob, score->tokens[i].logprob) << i;
      EXPECT_EQ(response->prompt_logprobs[i].top, score->tokens[i].top) << i;
    }
    EXPECT_EQ(response->usage.cached_tokens, 0) << "every row is wanted";
    double sum = 0.0;
    for (const TokenLogprob& token : response->logprobs) {
      sum += token.logprob;
    }
    EXPECT_EQ(response->cumulative_logprob, sum);
    EXPECT_LT(sum, 0.0);
  }
}

TEST(Engine, SaysHowMuchOfThePromptWasInTheCache) {
  Engine engine = load(kTiny);
  Request wanted = request(std::vector<std::int32_t>(150, 7), 4);
  wanted.ignore_eos = true;
  const auto first = engine.generate(wanted);
  const auto second = engine.generate(wanted);
  EXPECT_EQ(first->usage.cached_tokens, 0);
  EXPECT_EQ(second->usage.cached_tokens, 128);
  EXPECT_EQ(second->ids, first->ids);
  auto off = Engine::load(
      {.model = kTiny, .num_threads = 2, .max_model_len = 256, .enable_prefix_caching = false});
  ASSERT_TRUE(off.has_value());
  EXPECT_EQ(off->generate(wanted)->ids, first->ids);
  EXPECT_EQ(off->generate(wanted)->usage.cached_tokens, 0);
}

TEST(Engine, RefusesWhatCannotBeRunAndGoesOn) {
  Engine engine = load(kTiny);
  Request with_stop = request({1}, 4);
  with_stop.stop = {"x"};
  Request too_few = request({1}, -2);
  Request too_many = request({1}, 4);
  too_many.min_tokens = 5;
  Request logprobs = request({1}, 4);
  logprobs.top_logprobs = 513;
  const std::pair<Request, Code> cases[] = {
      {with_stop, Code::kUnsupported},
      {too_few, Code::kInvalidArgument},
      {too_many, Code::kInvalidArgument},
      {logprobs, Code::kInvalidArgument},
      {request({}, 4), Code::kInvalidArgument},
      {request({512}, 4), Code::kInvalidArgument},
      {request(std::vector<std::int32_t>(256, 1), 1), Code::kInvalidArgument},
      {Request{.prompt = TextPrompt{"hello"}}, Code::kUnsupported},
      {Request{.prompt = ChatPrompt{.messages = {{.content = "hello"}}}}, Code::kUnsupported},
  };
  for (const auto& [refused, code] : cases) {
    const auto response = engine.generate(refused);
    ASSERT_FALSE(response.has_value());
    EXPECT_EQ(response.error().code(), code) << response.error().message();
    EXPECT_TRUE(engine.generate(request({1, 2}, 2)).has_value()) << "the next request must run";
  }
}

TEST(Engine, CancelEndsTheAnswerAtOnce) {
  Engine engine = load(kTiny);
  Request wanted = request({1, 2}, 50);
  wanted.ignore_eos = true;
  int calls = 0;
  const auto response = engine.generate(wanted, [&](const Delta&) { return ++calls < 3; });
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(response->ids.size(), 3U);
  wanted.max_tokens = 4;
  EXPECT_EQ(engine.generate(wanted)->ids.size(), 4U);
}

// One weight of one router is NaN.
TEST(Engine, NanInARouterIsAnErrorThatNamesTheLayer) {
  const testing_support::TemporaryFolder folder;
  std::string bytes = testing_support::read_file(kTiny + "/model.safetensors");
  {
    const auto file = weights::SafetensorsFile::open(kTiny + "/model.safetensors");
    ASSERT_TRUE(file.has_value());
    bool is_poisoned = false;
    for (const weights::TensorEntry& entry : file->header().tensors) {
      if (entry.name == "model.layers.2.mlp.router.weight") {
        const std::size_t at = static_cast<std::size_t>(file->header().data_begin + entry.begin);
        bytes[at] = '\xC0';
        bytes[at + 1] = '\x7F';
        is_poisoned = true;
      }
    }
    ASSERT_TRUE(is_poisoned);
  }
  testing_support::write_file(folder / "model.safetensors", bytes);
  testing_support::write_file(folder / "config.json",
                              testing_support::read_file(kTiny + "/config.json"));
  Engine engine = load(folder.path());
  const auto response = engine.generate(request({1, 2, 3}, 4));
  ASSERT_FALSE(response.has_value());
  EXPECT_EQ(response.error().code(), Code::kInternal);
  EXPECT_THAT(response.error().message(), HasSubstr("layer 2"));
  EXPECT_FALSE(engine.score({.ids = {1, 2}}).has_value());
}

}  // namespace
}  // namespace nibble
