// Many sequences: nothing that a sequence gets depends on the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "fake_model.h"

namespace nibble::engine {
namespace {

TokenRequest seeded(std::int32_t num_prompt, std::int32_t max_tokens, std::uint64_t seed) {
  TokenRequest request{.prompt = counting_prompt(num_prompt, static_cast<std::int32_t>(seed)),
                       .max_tokens = max_tokens,
                       .top_logprobs = 1};
  request.sampling.temperature = 1.3F;
  request.sampling.top_p = 0.95F;
  request.sampling.frequency_penalty = 0.3F;
  request.sampling.repetition_penalty = 1.1F;
  request.sampling.seed = seed;
  return request;
}

TEST(TokenEngineBatch, SeededAnswerIsTheSameAloneAndAmongOthers) {
  FakeEngine alone;
  const auto expected = tokens_of(alone.run(seeded(21, 40, 42)));
  ASSERT_EQ(expected.size(), 40U);
  for (std::uint64_t before = 0; before < 4; ++before) {
    FakeEngine fake;
    for (std::uint64_t i = 0; i < before; ++i) {
      ASSERT_TRUE(
          fake.engine->add(seeded(5 + static_cast<std::int32_t>(i) * 7, 30, i)).has_value());
    }
    const SequenceId id = fake.engine->add(seeded(21, 40, 42)).value();
    for (std::uint64_t i = before; i < 8; ++i) {
      ASSERT_TRUE(
          fake.engine->add(seeded(3 + static_cast<std::int32_t>(i) * 5, 25, i)).has_value());
    }
    EXPECT_EQ(tokens_of(fake.run(), id), expected) << before << " came before";
  }
}

TEST(TokenEngineBatch, EqualSeedsRepeatAndOtherSeedsDiffer) {
  FakeEngine fake;
  TokenRequest other = seeded(9, 30, 7);
  other.sampling.seed = 8;
  const auto first = tokens_of(fake.run(seeded(9, 30, 7)));
  EXPECT_EQ(tokens_of(fake.run(seeded(9, 30, 7))), first);
  EXPECT_NE(tokens_of(fake.run(other)), first);
}

struct Scored {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;  // of every prompt position
  std::vector<float> logprobs;
  bool operator==(const Scored&) const = default;
};

// Runs requests in a cache of `num_pages` and returns what each got, by its index.
struct Outcome {
  std::vector<Scored> scored;
  std::int64_t preemptions = 0;
};
Outcome run_all(std::int32_t num_pages, bool wants_prompt_logits) {
  FakeOptions options;
  options.limits.num_pages[0] = num_pages;
  FakeEngine fake(options);
  Outcome out;
  out.scored.resize(10);
  std::map<SequenceId, std::size_t> index;
  for (std::size_t i = 0; i < out.scored.size(); ++i) {
    TokenRequest request = seeded(4 + static_cast<std::int32_t>(i) * 3, 45, i);
    if (wants_prompt_logits) {
      request.on_prompt_logits = [&scored = out.scored[i], next = 0](
                                     std::int32_t position, std::span<const float> logits) mutable {
        EXPECT_EQ(position, next++);
        scored.logits.insert(scored.logits.end(), logits.begin(), logits.end());
      };
    }
    const std::size_t num_prompt = request.prompt.size();
    index[fake.engine->add(std::move(request)).value()] = i;
    EXPECT_LE(num_prompt + 45, static_cast<std::size_t>(num_pages) * 4);
  }
  for (const TokenEvent& event : fake.run()) {
    Scored& scored = out.scored[index[event.sequence]];
    scored.tokens.push_back(event.token);
    scored.logprobs.push_back(event.logprob.logprob);
  }
  out.preemptions = fake.engine->scheduler().num_preemptions();
  EXPECT_TRUE(fake.holds_no_page());
  return out;
}

// Too few pages for all: sequences start over, and nobody can tell from the answers. Scored
// positions are reported once although they are computed twice.
TEST(TokenEngineBatch, PreemptionDoesNotShow) {
  for (const bool wants_prompt_logits : {false, true}) {
    const Outcome roomy = run_all(400, wants_prompt_logits);
    EXPECT_EQ(roomy.preemptions, 0);
    for (const std::int32_t num_pages : {20, 27, 33, 41, 60}) {
      const Outcome tight = run_all(num_pages, wants_prompt_logits);
      EXPECT_GT(tight.preemptions, 0) << num_pages;
      EXPECT_TRUE(tight.scored == roomy.scored)
          << num_pages << " pages, prompt logits: " << wants_prompt_logits;
    }
    for (std::size_t i = 0; i < roomy.scored.size(); ++i) {
      EXPECT_EQ(roomy.scored[i].tokens.size(), 45U);
      EXPECT_EQ(roomy.scored[i].logits.size(), wants_prompt_logits ? (4 + i * 3) * 32 : 0);
    }
  }
}

TEST(TokenEngineBatch, CancelFreesEverythingAtEveryMoment) {
  for (int moment = 0; moment < 25; ++moment) {
    FakeOptions options;
    options.limits.num_pages[0] = 30;
    FakeEngine fake(options);
    std::vector<SequenceId> ids;
    for (std::uint64_t i = 0; i < 6; ++i) {
      ids.push_back(fake.engine->add(seeded(10 + static_cast<std::int32_t>(i) * 5, 20, i)).value());
    }
    std::vector<TokenEvent> events;
    for (int step = 0; step < moment; ++step) {
      fake.step(events);
    }
    const std::size_t num_events = events.size();
    for (const SequenceId id : ids) {
      fake.engine->cancel(id);
      fake.engine->cancel(id);  // twice does no harm
    }
    EXPECT_TRUE(fake.holds_no_page()) << moment << " steps";
    EXPECT_FALSE(fake.engine->has_work());
    fake.step(events);
    EXPECT_EQ(events.size(), num_events) << "an event after everything was cancelled";
  }
}

TEST(TokenEngineBatch, CancellingOneLeavesTheOthersAsTheyWere) {
  FakeEngine alone;
  const auto expected = tokens_of(alone.run(seeded(15, 30, 3)));
  FakeEngine fake;
  const SequenceId other = fake.engine->add(seeded(11, 60, 1)).value();
  const SequenceId kept = fake.engine->add(seeded(15, 30, 3)).value();
  std::vector<TokenEvent> events;
  for (int step = 0; step < 6; ++step) {
    fake.step(events);
  }
  fake.engine->cancel(other);
  const std::vector<TokenEvent> rest = fake.run();
  events.insert(events.end(), rest.begin(), rest.end());
  EXPECT_EQ(tokens_of(events, kept), expected);
}

TEST(TokenEngineBatch, EveryStepServesEveryRunningSequence) {
  FakeEngine fake;
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(fake.engine->add(seeded(1, 10, i)).has_value());
  }
  for (int step = 0; step < 10; ++step) {
    std::vector<TokenEvent> events;
    fake.step(events);
    EXPECT_EQ(events.size(), 8U);
  }
  EXPECT_EQ(fake.model->num_forwards, 10);
  EXPECT_FALSE(fake.engine->has_work());
}

// One of three beginnings, then anything.
TokenRequest random_request(std::mt19937& random) {
  const auto below = [&](std::uint32_t limit) {
    return static_cast<std::int32_t>(random() % limit);
  };
  const std::int32_t family = below(3);
  const std::int32_t common = below(40);
  TokenRequest request = seeded(1, 1 + below(30), random());
  request.prompt.clear();
  for (std::int32_t i = 0, length = 1 + below(60); i < length; ++i) {
    request.prompt.push_back(i < common ? family : below(32));
  }
  return request;
}

FakeOptions random_options(std::mt19937& random) {
  const auto between = [&](std::uint32_t low, std::uint32_t high) {
    return static_cast<std::int32_t>(low + random() % (high - low + 1));
  };
  FakeOptions options;
  SchedulerLimits& limits = options.limits;
  limits.max_num_seqs = between(1, 64);
  limits.max_batch_tokens = between(1, 40);
  limits.max_logit_rows = limits.max_num_seqs + between(0, 4);
  limits.page_size = between(1, 8);
  limits.window = between(1, 12);
  limits.num_pages[0] = between(95, 250) / limits.page_size + 1;
  limits.num_pages[1] = window_pages(limits) + between(0, 30);
  return options;
}

// Arrivals, cancellations and too few pages: who was not cancelled gets the answer that it gets
// alone, who was the beginning of it.
TEST(TokenEngineBatch, RandomLoadsGiveEachTheAnswerThatItGetsAlone) {
  std::int64_t num_preemptions = 0;
  std::int64_t hit_tokens = 0;
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    FakeOptions options = random_options(random);
    FakeEngine fake(options);
    std::map<SequenceId, TokenRequest> requests;
    std::set<SequenceId> cancelled;
    std::vector<TokenEvent> events;
    while (requests.size() < 65) {
      TokenRequest request = random_request(random);
      requests[fake.engine->add(request).value()] = request;
      if (random() % 3 == 0) {
        fake.step(events);
      }
      if (random() % 6 == 0) {
        const auto at = std::next(requests.begin(), random() % requests.size());
        fake.engine->cancel(at->first);
        cancelled.insert(at->first);
      }
    }
    const auto rest = fake.run();
    events.insert(events.end(), rest.begin(), rest.end());
    EXPECT_TRUE(fake.holds_no_page());
    num_preemptions += fake.engine->scheduler().num_preemptions();
    hit_tokens += fake.engine->scheduler().counters().hit_tokens;
    options.limits.num_pages[0] = 200;
    options.limits.shares_prefixes = false;
    FakeEngine alone(options);
    for (const auto& [id, request] : requests) {
      std::vector<std::int32_t> expected = tokens_of(alone.run(request));
      const std::vector<std::int32_t> found = tokens_of(events, id);
      ASSERT_TRUE(found.size() == expected.size() || cancelled.contains(id)) << "request " << id;
      expected.resize(found.size());
      EXPECT_EQ(found, expected) << "request " << id;
    }
  }
  EXPECT_GT(num_preemptions, 100);
  EXPECT_GT(hit_tokens, 1000);
}

}  // namespace
}  // namespace nibble::engine
