// Prefixes through the whole engine: what they save, and that nothing else changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fake_model.h"

namespace nibble::engine {
namespace {

TokenRequest sampled(std::vector<std::int32_t> prompt, std::int32_t max_tokens,
                     std::uint64_t seed = 1) {
  TokenRequest request{.prompt = std::move(prompt), .max_tokens = max_tokens, .top_logprobs = 2};
  request.sampling.seed = seed;
  return request;
}

FakeOptions without_sharing(FakeOptions options = {}) {
  options.limits.shares_prefixes = false;
  return options;
}

// Ids and log-probabilities.
void expect_equal_answers(const std::vector<TokenEvent>& a, const std::vector<TokenEvent>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].token, b[i].token) << i;
    EXPECT_EQ(a[i].logprob.logprob, b[i].logprob.logprob) << i;
    EXPECT_EQ(a[i].logprob.top, b[i].logprob.top) << i;
    EXPECT_EQ(a[i].finish, b[i].finish) << i;
  }
}

TEST(PrefixCache, ASharedPrefixOfAThousandTokensIsTenTimesCheaper) {
  FakeOptions options{.max_position = 1100};
  options.limits.page_size = 64;
  options.limits.window = 128;
  options.limits.num_pages[1] = 40;
  FakeEngine fake(options);
  FakeEngine plain(without_sharing(options));
  std::vector<std::int32_t> prompt = counting_prompt(1000);
  for (const std::int32_t own : {3, 4}) {
    prompt.resize(1000);
    prompt.insert(prompt.end(), 20, own);
    fake.model->num_rows = plain.model->num_rows = 0;
    const auto events = fake.run(sampled(prompt, 1));
    expect_equal_answers(events, plain.run(sampled(prompt, 1)));
    EXPECT_EQ(plain.model->num_rows, 1020);
    EXPECT_EQ(fake.model->num_rows, own == 3 ? 1020 : 1020 - 960);
    EXPECT_EQ(events[0].cached_tokens, own == 3 ? 0 : 960);
    if (own == 4) {
      EXPECT_LE(10 * fake.model->num_rows, plain.model->num_rows);
    }
  }
  EXPECT_EQ(fake.engine->scheduler().counters().queried_tokens, 2040);
  EXPECT_EQ(fake.engine->scheduler().counters().hit_tokens, 960);
}

// Lengths around a page, each sent twice: the same answer, and one row at least.
TEST(PrefixCache, RepeatedPromptsGiveTheSameAnswer) {
  for (const std::int32_t length : {1, 3, 4, 5, 8, 9, 31, 32, 33}) {
    FakeEngine fake;
    const auto first = fake.run(sampled(counting_prompt(length), 10));
    fake.model->num_rows = 0;
    const auto second = fake.run(sampled(counting_prompt(length), 10));
    expect_equal_answers(first, second);
    EXPECT_EQ(second[0].cached_tokens, (length - 1) / 4 * 4);
    EXPECT_EQ(fake.model->num_rows, length - second[0].cached_tokens + 9);
    EXPECT_TRUE(fake.holds_no_page());
  }
}

// A conversation: the next prompt begins with the last one and its answer.
TEST(PrefixCache, AnswersEnterTheCacheToo) {
  FakeEngine fake;
  std::vector<std::int32_t> conversation = counting_prompt(10);
  std::int32_t computed = 0;  // of the conversation, so far
  for (int turn = 0; turn < 4; ++turn) {
    const auto events = fake.run(sampled(conversation, 12));
    EXPECT_EQ(events[0].cached_tokens, computed / 4 * 4) << turn;
    for (const std::int32_t token : tokens_of(events)) {
      conversation.push_back(token);
    }
    computed = static_cast<std::int32_t>(conversation.size()) - 1;  // the last has no keys yet
    conversation.insert(conversation.end(), 5, turn);
  }
}

TEST(PrefixCache, PromptLogitsAreReportedInFullEachTime) {
  FakeEngine fake;
  std::vector<float> reported[2];
  for (std::vector<float>& logits : reported) {
    TokenRequest request = sampled(counting_prompt(30), 5);
    request.on_prompt_logits = [&](std::int32_t /*position*/, std::span<const float> row) {
      logits.insert(logits.end(), row.begin(), row.end());
    };
    fake.run(request);
  }
  EXPECT_EQ(reported[0].size(), 30U * 32U);
  EXPECT_EQ(reported[0], reported[1]);
}

TEST(PrefixCache, ChoicesOfOnePromptComputeItOnce) {
  FakeEngine fake;
  std::vector<SequenceId> ids;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    ids.push_back(fake.engine->add(sampled(counting_prompt(102), 20, seed)).value());
  }
  const auto events = fake.run();
  // 102 rows, then 2 for each of the others; every token but the last is a row.
  EXPECT_EQ(fake.model->num_rows, 102 + 4 * 2 + 5 * 19);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    FakeEngine alone(without_sharing());
    EXPECT_EQ(tokens_of(events, ids[seed]),
              tokens_of(alone.run(sampled(counting_prompt(102), 20, seed))));
  }
  EXPECT_NE(tokens_of(events, ids[0]), tokens_of(events, ids[1]));
}

TEST(PrefixCache, APreemptedSequenceFindsItsOwnPages) {
  std::int64_t rows[2];
  for (const bool shares : {false, true}) {
    FakeOptions options;
    options.limits.num_pages[0] = 40;
    options.limits.num_pages[1] = 60;
    options.limits.shares_prefixes = shares;
    FakeEngine fake(options);
    for (std::int32_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(fake.engine->add(sampled(counting_prompt(30, 7 * i), 40)).has_value());
    }
    fake.run();
    EXPECT_GT(fake.engine->scheduler().num_preemptions(), 0);
    rows[shares ? 1 : 0] = fake.model->num_rows;
  }
  EXPECT_LT(rows[1], rows[0]);
}

TEST(PrefixCache, AFailedSequenceLeavesNothingBehind) {
  FakeEngine fake;
  bool is_sick = true;
  fake.model->script = [&](std::int32_t /*first*/, std::int32_t position, std::span<float> row) {
    if (is_sick && position == 35) {
      row[3] = NAN;
    }
  };
  EXPECT_EQ(fake.run(sampled(counting_prompt(30), 20)).back().finish, Finish::kFailed);
  EXPECT_EQ(fake.engine->scheduler().cache().tree().num_nodes(), 0);
  is_sick = false;
  const auto events = fake.run(sampled(counting_prompt(30), 20));
  EXPECT_EQ(events[0].cached_tokens, 0);
  EXPECT_EQ(events.back().finish, Finish::kLength);
}

TEST(PrefixCache, CancelledWorkIsNotLost) {
  FakeEngine fake;
  const SequenceId id = fake.engine->add(sampled(counting_prompt(100), 5)).value();
  std::vector<TokenEvent> events;
  for (int step = 0; step < 3; ++step) {
    fake.step(events);
  }
  fake.engine->cancel(id);
  EXPECT_TRUE(fake.holds_no_page());
  EXPECT_EQ(fake.run(sampled(counting_prompt(100), 5))[0].cached_tokens, 48);
}

// The bound of the cache is its pages: thousands of prompts leave no more than that behind.
TEST(PrefixCache, StaysWithinItsPages) {
  FakeOptions options;
  options.limits.num_pages[0] = 50;
  FakeEngine fake(options);
  for (std::uint64_t i = 0; i < 2000; ++i) {
    fake.run(sampled({static_cast<std::int32_t>(i % 32), static_cast<std::int32_t>(i / 32 % 32),
                      static_cast<std::int32_t>(i / 1024), 1, 2, 3},
                     4, i));
    ASSERT_LE(fake.engine->scheduler().cache().tree().num_nodes(), 50);
  }
  EXPECT_GT(fake.engine->scheduler().cache().num_evicted(model::CacheGroup::kFull), 1000);
}

}  // namespace
}  // namespace nibble::engine
