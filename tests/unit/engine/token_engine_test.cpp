// One sequence at a time: how it ends, what is refused, what sampling sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fake_model.h"

namespace nibble::engine {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Makes `id` the largest logit by far.
FakeModel::Script always(std::int32_t id) {
  return [id](std::int32_t /*first*/, std::int32_t /*position*/, std::span<float> logits) {
    logits[static_cast<std::size_t>(id)] = 50.0F;
  };
}

TokenRequest greedy(std::vector<std::int32_t> prompt, std::int32_t max_tokens) {
  TokenRequest request{.prompt = std::move(prompt), .max_tokens = max_tokens};
  request.sampling.temperature = 0.0F;
  return request;
}

TEST(TokenEngine, StopsAfterMaxTokens) {
  FakeEngine fake;
  const auto events = fake.run(greedy({1, 2, 3}, 5));
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[3].finish, Finish::kNone);
  EXPECT_EQ(events[4].finish, Finish::kLength);
  EXPECT_TRUE(fake.holds_no_page());
}

TEST(TokenEngine, StopIdEndsTheAnswerAndIsItsLastToken) {
  FakeEngine fake;
  fake.model->script = [](std::int32_t, std::int32_t position, std::span<float> logits) {
    logits[position == 5 ? 7U : 6U] = 50.0F;
  };
  TokenRequest request = greedy({1, 2, 3}, 20);
  request.stop_ids = {30, 7};
  const auto events = fake.run(request);
  EXPECT_THAT(tokens_of(events), ElementsAre(6, 6, 6, 7));
  EXPECT_EQ(events.back().finish, Finish::kStop);
  EXPECT_TRUE(fake.holds_no_page());
}

TEST(TokenEngine, StopIdOnTheLastAllowedTokenIsAStop) {
  FakeEngine fake;
  fake.model->script = always(7);
  TokenRequest request = greedy({1}, 1);
  request.stop_ids = {7};
  EXPECT_EQ(fake.run(request).back().finish, Finish::kStop);
}

TEST(TokenEngine, MinTokensHoldsStopIdsBack) {
  FakeEngine fake;
  fake.model->script = always(7);
  TokenRequest request = greedy({1, 2}, 20);
  request.stop_ids = {7};
  request.min_tokens = 3;
  const auto tokens = tokens_of(fake.run(request));
  ASSERT_EQ(tokens.size(), 4U);
  EXPECT_EQ(tokens[3], 7);
  EXPECT_THAT(std::vector(tokens.begin(), tokens.begin() + 3), Each(Not(7)));
}

TEST(TokenEngine, MaxTokensZeroComputesThePromptOnly) {
  FakeEngine fake;
  std::vector<std::int32_t> positions;
  TokenRequest request{.prompt = counting_prompt(20)};
  request.on_prompt_logits = [&](std::int32_t position, std::span<const float> logits) {
    positions.push_back(position);
    EXPECT_EQ(logits.size(), 32U);
  };
  const auto events = fake.run(request);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].token, -1);
  EXPECT_EQ(events[0].finish, Finish::kLength);
  EXPECT_EQ(positions, [] {
    std::vector<std::int32_t> all(20);
    for (std::int32_t i = 0; i < 20; ++i) {
      all[static_cast<std::size_t>(i)] = i;
    }
    return all;
  }());
}

TEST(TokenEngine, ContextLimitIsExact) {
  FakeEngine fake({.max_position = 40});
  const auto last = fake.run(greedy(counting_prompt(39), 10));
  ASSERT_EQ(last.size(), 1U) << "room for one token";
  EXPECT_EQ(last[0].finish, Finish::kLength);
  const auto many = fake.run(greedy(counting_prompt(10), 100));
  EXPECT_EQ(many.size(), 30U);
  EXPECT_EQ(many.back().finish, Finish::kLength);
  for (const std::int32_t length : {40, 41, 160}) {
    const auto refused = fake.engine->add(greedy(counting_prompt(length), 1));
    ASSERT_FALSE(refused.has_value()) << length;
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.error().message(), HasSubstr(std::to_string(length)));
    EXPECT_THAT(refused.error().message(), HasSubstr("40"));
  }
  EXPECT_TRUE(fake.engine->add({.prompt = counting_prompt(40)}).has_value())
      << "scored, nothing generated";
  EXPECT_EQ(fake.run().size(), 1U);
}

// The cache is smaller than the context: what never fits is refused at once.
TEST(TokenEngine, RefusesWhatTheWholeCacheCannotHold) {
  FakeOptions options{.max_position = 1000};
  options.limits.page_size = 16;
  options.limits.num_pages[0] = 8;
  FakeEngine fake(options);
  const auto refused = fake.engine->add(greedy(counting_prompt(128), 1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("8 pages of 16 tokens"));
  EXPECT_FALSE(fake.engine->has_work());
  const auto events = fake.run(greedy(counting_prompt(100), 500));
  EXPECT_EQ(events.size(), 28U) << "ends where the cache does";
  EXPECT_EQ(events.back().finish, Finish::kLength);
}

TEST(TokenEngine, RefusesIdsOutsideTheVocabularyByField) {
  FakeEngine fake;
  for (const std::int32_t id : {-1, 32, std::numeric_limits<std::int32_t>::max()}) {
    TokenRequest stop = greedy({1}, 1);
    stop.stop_ids = {id};
    TokenRequest bias = greedy({1}, 1);
    bias.sampling.logit_bias = {{id, 1.0F}};
    const std::pair<const char*, TokenRequest> cases[] = {
        {"prompt", greedy({1, id}, 1)}, {"stop_token_ids", stop}, {"logit_bias", bias}};
    for (const auto& [field, request] : cases) {
      const auto refused = fake.engine->add(request);
      ASSERT_FALSE(refused.has_value()) << field;
      EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
      EXPECT_THAT(refused.error().message(), testing::StartsWith(field));
      EXPECT_THAT(refused.error().message(), HasSubstr(std::to_string(id)));
    }
  }
  EXPECT_FALSE(fake.engine->add(greedy({}, 1)).has_value());
  TokenRequest largest = greedy({31}, 1);
  largest.stop_ids = {31};
  largest.sampling.logit_bias = {{31, 1.0F}};
  EXPECT_EQ(fake.run(largest).size(), 1U);
}

TEST(TokenEngine, LogitBiasMovesTheChoice) {
  FakeEngine fake;
  fake.model->script = always(7);
  TokenRequest request = greedy({1}, 3);
  request.sampling.logit_bias = {{9, 100.0F}};
  EXPECT_THAT(tokens_of(fake.run(request)), ElementsAre(9, 9, 9));
  request.sampling.logit_bias = {{7, -100.0F}};
  EXPECT_THAT(tokens_of(fake.run(request)), Each(Not(7)));
}

// Logits 10, 9, 8 for ids 3, 4, 5; the prompt holds 3.
FakeModel::Script three_steps() {
  return [](std::int32_t, std::int32_t, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0F);
    logits[3] = 10.0F;
    logits[4] = 9.0F;
    logits[5] = 8.0F;
  };
}

TEST(TokenEngine, RepetitionPenaltyCountsPromptAndOutput) {
  FakeEngine fake;
  fake.model->script = three_steps();
  TokenRequest request = greedy({3}, 3);
  request.sampling.repetition_penalty = 4.0F;
  // 10 / 4 from the prompt; then 9 / 4, then 8 / 4 as well, and 10 / 4 is the largest.
  EXPECT_THAT(tokens_of(fake.run(request)), ElementsAre(4, 5, 3));
}

TEST(TokenEngine, PresenceAndFrequencyCountOutputOnly) {
  FakeEngine fake;
  fake.model->script = three_steps();
  TokenRequest presence = greedy({3}, 4);
  presence.sampling.presence_penalty = 1.5F;
  // 3 (10), 4 (9 > 8.5), 3 (8.5 > 8 > 7.5), and it does not grow: 3 again.
  EXPECT_THAT(tokens_of(fake.run(presence)), ElementsAre(3, 4, 3, 3));
  TokenRequest frequency = greedy({3}, 4);
  frequency.sampling.frequency_penalty = 1.5F;
  // 3 (10), 4 (9 > 8.5), 3 (8.5), 5 (8 > 7.5, 7).
  EXPECT_THAT(tokens_of(fake.run(frequency)), ElementsAre(3, 4, 3, 5));
}

TEST(TokenEngine, LogprobsAreOfTheRawLogits) {
  FakeEngine fake;
  fake.model->script = three_steps();
  TokenRequest request = greedy({1}, 1);
  request.sampling.logit_bias = {{5, 100.0F}};
  request.sampling.temperature = 0.5F;
  request.top_logprobs = 2;
  const auto events = fake.run(request);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].token, 5);
  const double total = std::log(29.0 + std::exp(10.0) + std::exp(9.0) + std::exp(8.0));
  EXPECT_NEAR(events[0].logprob.logprob, 8.0 - total, 1e-6);
  ASSERT_EQ(events[0].logprob.top.size(), 2U);
  EXPECT_EQ(events[0].logprob.top[0].first, 3);
  EXPECT_NEAR(events[0].logprob.top[1].second, 9.0 - total, 1e-6);
}

TEST(TokenEngine, NanInARowFailsItsSequenceOnly) {
  FakeEngine fake;
  fake.model->script = [](std::int32_t first, std::int32_t position, std::span<float> logits) {
    if (first == 2 && position == 6) {
      logits[0] = NAN;
    }
  };
  const SequenceId sound = fake.engine->add(greedy({1, 1}, 12)).value();
  const SequenceId sick = fake.engine->add(greedy({2, 1}, 12)).value();
  const auto events = fake.run();
  EXPECT_EQ(tokens_of(events, sound).size(), 12U);
  EXPECT_EQ(tokens_of(events, sick).size(), 5U);
  int failures = 0;
  for (const TokenEvent& event : events) {
    if (event.finish == Finish::kFailed) {
      ++failures;
      EXPECT_EQ(event.sequence, sick);
      EXPECT_EQ(event.failure.code(), Code::kInternal);
    }
  }
  EXPECT_EQ(failures, 1);
  EXPECT_TRUE(fake.holds_no_page());
}

// Of the sequence's own steps, the chunks of its prompt included.
TEST(TokenEngine, EventsTellTheKernelsThatComputedTheirSequence) {
  FakeEngine fake;
  const auto kernels = [&fake](std::vector<std::int32_t> prompt) {
    const std::vector<TokenEvent> events = fake.run(greedy(std::move(prompt), 3));
    std::vector<std::uint64_t> out(events.size());
    std::transform(events.begin(), events.end(), out.begin(),
                   [](const TokenEvent& event) { return event.kernels; });
    return out;
  };
  EXPECT_THAT(kernels({1, 2, 3}), ElementsAre(2, 3, 3));
  EXPECT_THAT(kernels({4}), ElementsAre(1, 1, 1));
}

TEST(TokenEngine, FailedForwardEndsTheSequencesOfTheStep) {
  FakeOptions options;
  options.limits.max_num_seqs = 2;
  options.limits.max_logit_rows = 2;
  FakeEngine fake(options);
  std::vector<SequenceId> ids;
  ids.reserve(3);
  for (std::int32_t i = 0; i < 3; ++i) {
    ids.push_back(fake.engine->add(greedy({i, 1}, 4)).value());
  }
  std::vector<TokenEvent> events;
  fake.step(events);
  EXPECT_EQ(events.size(), 2U);
  events.clear();
  fake.model->fail_next = Status(Code::kInternal, "layer 3: NaN");
  fake.step(events);
  ASSERT_EQ(events.size(), 2U);
  for (const TokenEvent& event : events) {
    EXPECT_EQ(event.finish, Finish::kFailed);
    EXPECT_EQ(event.failure.message(), "layer 3: NaN");
    EXPECT_NE(event.sequence, ids[2]);
  }
  EXPECT_EQ(tokens_of(fake.run(), ids[2]).size(), 4U) << "the one that waited goes on";
  EXPECT_TRUE(fake.holds_no_page());
}

}  // namespace
}  // namespace nibble::engine
