// Steps that are enqueued before the one before them is finished give what steps one by one give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

#include "fake_model.h"

namespace nibble::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// What a request got, in a form that can be compared.
struct Answer {
  std::vector<std::int32_t> tokens;
  Finish finish = Finish::kNone;
  std::vector<float> logprobs;
  std::vector<float> prompt_logits;
  bool operator==(const Answer&) const = default;
};

enum class Kind : std::uint8_t {
  kPlain,
  kGreedy,
  kStops,
  kPenalties,
  kLogprobs,
  kPrompt,
  kNothing
};

TokenRequest request_of(Kind kind, std::uint64_t seed) {
  TokenRequest request{.prompt = counting_prompt(static_cast<std::int32_t>(3 + seed * 5 % 29),
                                                 static_cast<std::int32_t>(seed)),
                       .max_tokens = static_cast<std::int32_t>(1 + seed * 7 % 40)};
  request.sampling.seed = seed;
  request.sampling.temperature = kind == Kind::kGreedy ? 0.0F : 1.1F;
  switch (kind) {
    case Kind::kPlain: request.sampling.top_k = 9; break;
    case Kind::kGreedy: break;
    case Kind::kStops:
      request.stop_ids = {3, 7, 11};
      request.min_tokens = static_cast<std::int32_t>(seed % 5);
      request.max_tokens = std::max(request.max_tokens, request.min_tokens);
      request.sampling.logit_bias = {{5, 1.5F}, {5, -0.5F}, {9, -100.0F}};
      break;
    case Kind::kPenalties: request.sampling.frequency_penalty = 0.7F; break;
    case Kind::kLogprobs: request.top_logprobs = 2; break;
    case Kind::kPrompt: break;  // the caller takes the logits
    case Kind::kNothing: request.max_tokens = 0; break;
  }
  return request;
}

// Requests that arrive over time, some of them cancelled; what each got.
std::vector<Answer> run(bool samples, const std::vector<Kind>& kinds, std::uint32_t seed,
                        std::int32_t num_pages, int& most_started) {
  FakeOptions options{.samples = samples};
  options.limits.num_pages[0] = num_pages;
  options.limits.max_num_seqs = 5;
  FakeEngine fake(options);
  std::mt19937 random(seed);
  std::vector<Answer> answers(40);
  std::map<SequenceId, std::size_t> index;
  std::vector<TokenEvent> events;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Kind kind = kinds[random() % kinds.size()];
    TokenRequest request = request_of(kind, random() % 1000);
    if (kind == Kind::kPrompt) {
      request.on_prompt_logits = [&answer = answers[i]](std::int32_t, std::span<const float> row) {
        answer.prompt_logits.insert(answer.prompt_logits.end(), row.begin(), row.end());
      };
    }
    index[fake.engine->add(std::move(request)).value()] = i;
    for (std::uint32_t steps = random() % 4; steps > 0; --steps) {
      fake.step(events);
    }
  }
  for (const TokenEvent& event : fake.run()) {
    events.push_back(event);
  }
  for (const TokenEvent& event : events) {
    Answer& answer = answers[index.at(event.sequence)];
    EXPECT_EQ(answer.finish, Finish::kNone);  // nothing comes after the end
    answer.finish = event.finish;
    if (event.token >= 0) {
      answer.tokens.push_back(event.token);
      answer.logprobs.push_back(event.logprob.logprob);
    }
  }
  EXPECT_TRUE(fake.holds_no_page());
  most_started = std::max(most_started, fake.model->most_started);
  return answers;
}

constexpr std::int32_t kPlenty = 400;
constexpr std::int32_t kScarce = 30;  // sequences are preempted

TEST(RunAhead, GivesTheAnswersOfStepsOneByOneWhateverElseRuns) {
  const std::vector<std::vector<Kind>> mixes = {{Kind::kPlain, Kind::kGreedy},
                                                {Kind::kStops},
                                                {Kind::kPlain, Kind::kStops, Kind::kNothing},
                                                {Kind::kPlain, Kind::kPenalties, Kind::kLogprobs,
                                                 Kind::kPrompt, Kind::kStops, Kind::kNothing}};
  int most_started = 0;
  int none_started = 0;
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    for (const auto& kinds : mixes) {
      for (const std::int32_t num_pages : {kPlenty, kScarce}) {
        ASSERT_EQ(run(true, kinds, seed, num_pages, most_started),
                  run(false, kinds, seed, num_pages, none_started))
            << seed << ' ' << num_pages << ' ' << kinds.size();
      }
    }
  }
  EXPECT_EQ(most_started, 2);
  EXPECT_EQ(none_started, 0);
}

TEST(RunAhead, CopiesLogitsOnlyWhereTheHostNeedsThem) {
  FakeEngine fake({.samples = true});
  (void)fake.run(request_of(Kind::kStops, 5));
  (void)fake.run(request_of(Kind::kPenalties, 6));
  EXPECT_EQ(fake.model->num_copied_rows, 0);
  const auto events = fake.run(request_of(Kind::kLogprobs, 7));
  EXPECT_EQ(fake.model->num_copied_rows, static_cast<int>(tokens_of(events).size()));
}

TEST(RunAhead, TheNextStepIsStartedBeforeItsTokensAreKnown) {
  FakeEngine fake({.samples = true});
  TokenRequest request = request_of(Kind::kPlain, 4);
  request.max_tokens = 10;
  ASSERT_TRUE(fake.engine->add(request).has_value());
  std::vector<TokenEvent> events;
  fake.step(events);
  while (events.empty()) {
    fake.step(events);
  }
  const int computed = fake.model->num_forwards;  // when finished; one more is started
  EXPECT_EQ(fake.model->most_started, 2);
  EXPECT_THAT(events, SizeIs(1));
  fake.step(events);
  EXPECT_EQ(fake.model->num_forwards, computed + 1);
  EXPECT_THAT(events, SizeIs(2));
  // The last step computes no row for nothing: that the answer ends there is known beforehand.
  (void)fake.run();
  EXPECT_EQ(fake.model->num_rows, static_cast<std::int64_t>(request.prompt.size()) + 9);
}

TEST(RunAhead, CancelFreesEverythingAtEveryMoment) {
  for (int moment = 0; moment < 30; ++moment) {
    FakeEngine fake({.samples = true});
    const auto other = fake.engine->add(request_of(Kind::kPlain, 39)).value();
    const auto id = fake.engine->add(request_of(Kind::kPlain, 25)).value();
    std::vector<TokenEvent> events;
    for (int step = 0; step < moment; ++step) {
      fake.step(events);
    }
    fake.engine->cancel(id);
    const std::size_t before = tokens_of(events, id).size();
    for (const TokenEvent& event : fake.run()) {
      events.push_back(event);
    }
    EXPECT_EQ(tokens_of(events, id).size(), before);
    EXPECT_EQ(tokens_of(events, other), tokens_of(FakeEngine().run(request_of(Kind::kPlain, 39))));
    EXPECT_TRUE(fake.holds_no_page());
  }
}

TEST(RunAhead, AFailedStepEndsThoseThatWereComputedFromIt) {
  FakeEngine fake({.samples = true});
  const auto first = fake.engine->add(request_of(Kind::kPlain, 25)).value();
  std::vector<TokenEvent> events;
  fake.step(events);
  fake.model->fail_next = Status(Code::kInternal, "layer 3: broken");
  fake.step(events);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().finish, Finish::kFailed);
  EXPECT_EQ(events.back().sequence, first);
  EXPECT_THAT(events.back().failure.message(), HasSubstr("layer 3"));
  EXPECT_TRUE(fake.holds_no_page());
  EXPECT_FALSE(fake.engine->has_work());
  const auto later = request_of(Kind::kPlain, 25);
  EXPECT_EQ(tokens_of(fake.run(later)), tokens_of(FakeEngine().run(later)));
}

TEST(RunAhead, ARowWithoutATokenFailsItsSequenceOnly) {
  FakeEngine fake({.samples = true});
  fake.model->script = [](std::int32_t first, std::int32_t position, std::span<float> logits) {
    if (first == 9 && position == 8) {
      logits[3] = std::numeric_limits<float>::quiet_NaN();
    }
  };
  TokenRequest broken{.prompt = counting_prompt(6, 9), .max_tokens = 20};
  TokenRequest whole{.prompt = counting_prompt(6, 10), .max_tokens = 20};
  const auto broken_id = fake.engine->add(broken).value();
  const auto whole_id = fake.engine->add(whole).value();
  const auto events = fake.run();
  EXPECT_THAT(tokens_of(events, broken_id), SizeIs(3));
  EXPECT_THAT(tokens_of(events, whole_id), SizeIs(20));
  for (const TokenEvent& event : events) {
    if (event.finish == Finish::kFailed) {
      EXPECT_EQ(event.sequence, broken_id);
      EXPECT_THAT(event.failure.message(), HasSubstr("NaN"));
    }
  }
}

}  // namespace
}  // namespace nibble::engine
