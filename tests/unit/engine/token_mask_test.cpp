// What a mask allows, forbids and is told.
#include "engine/token_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fake_model.h"

namespace nibble::engine {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Allows what `allowed` says for the answer so far.
class ListMask final : public TokenMask {
 public:
  using Allowed = std::function<std::vector<std::int32_t>(const std::vector<std::int32_t>&)>;
  explicit ListMask(Allowed allowed) : allowed_(std::move(allowed)) {}

  std::vector<std::int32_t> accepted;
  std::int32_t refused = -1;  // accept() fails on it

  bool mask(std::span<std::uint32_t> bits) override {
    std::fill(bits.begin(), bits.end(), 0U);
    for (const std::int32_t id : allowed_(accepted)) {
      bits[static_cast<std::size_t>(id) / 32] |= 1U << (static_cast<std::uint32_t>(id) % 32);
    }
    return true;
  }
  Status accept(std::int32_t token) override {
    if (token == refused) {
      return {Code::kInvalidArgument, "not this one"};
    }
    accepted.push_back(token);
    return {};
  }

 private:
  Allowed allowed_;
};

std::shared_ptr<ListMask> always(std::vector<std::int32_t> ids) {
  return std::make_shared<ListMask>([ids](const auto&) { return ids; });
}

TokenRequest masked(std::shared_ptr<TokenMask> mask, std::int32_t max_tokens,
                    float temperature = 1.0F) {
  TokenRequest request{.prompt = {1, 2, 3}, .max_tokens = max_tokens};
  request.sampling.temperature = temperature;
  request.mask = std::move(mask);
  return request;
}

TEST(TokenMask, OnlyWhatIsAllowedIsDrawnAndEachIsReported) {
  for (const float temperature : {0.0F, 5.0F}) {
    FakeEngine fake({.vocab = 70});  // a word that is not full
    const auto mask = std::make_shared<ListMask>([](const std::vector<std::int32_t>& so_far) {
      return so_far.size() % 2 == 0 ? std::vector{3, 69} : std::vector{31, 32, 64};
    });
    const auto tokens = tokens_of(fake.run(masked(mask, 40, temperature)));
    ASSERT_EQ(tokens.size(), 40U);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_THAT(tokens[i], i % 2 == 0 ? testing::Matcher<std::int32_t>(testing::AnyOf(3, 69))
                                        : testing::AnyOf(31, 32, 64));
    }
    EXPECT_EQ(mask->accepted, tokens);
    EXPECT_EQ(fake.engine->mask_cost().num_tokens, 40);
    EXPECT_GT(fake.engine->mask_cost().time.count(), 0);
  }
}

TEST(TokenMask, BiasAndPenaltiesDoNotBringBackWhatIsForbidden) {
  FakeEngine fake;
  TokenRequest request = masked(always({4, 5}), 6, 0.0F);
  request.sampling.logit_bias = {{9, 100.0F}};
  request.sampling.presence_penalty = 2.0F;
  EXPECT_THAT(tokens_of(fake.run(request)), Each(testing::AnyOf(4, 5)));
}

// Bits past the vocabulary allow nothing.
TEST(TokenMask, NothingAllowedFailsTheRequestWithItsReason) {
  FakeEngine fake({.vocab = 33});
  const auto mask = std::make_shared<ListMask>([](const std::vector<std::int32_t>& so_far) {
    return so_far.size() < 2 ? std::vector{7} : std::vector{40};
  });
  const auto events = fake.run(masked(mask, 10));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[2].finish, Finish::kFailed);
  EXPECT_EQ(events[2].failure.code(), Code::kInternal);
  EXPECT_THAT(events[2].failure.message(), HasSubstr("none of 33 ids"));
  EXPECT_THAT(events[2].failure.message(), HasSubstr("2 generated"));
  EXPECT_TRUE(fake.holds_no_page());
}

TEST(TokenMask, ARefusalOfTheChosenTokenFailsTheRequest) {
  FakeEngine fake;
  const auto mask = always({7});
  mask->refused = 7;
  const auto events = fake.run(masked(mask, 10));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].finish, Finish::kFailed);
  EXPECT_EQ(events[0].failure.message(), "not this one");
}

TEST(TokenMask, MinTokensGivesWayWhenOnlyTheEndIsAllowed) {
  FakeEngine fake;
  const auto mask = std::make_shared<ListMask>([](const std::vector<std::int32_t>& so_far) {
    return so_far.size() < 2 ? std::vector{6, 8} : std::vector{8};
  });
  TokenRequest request = masked(mask, 10);
  request.stop_ids = {8, 8};
  request.min_tokens = 5;
  const auto events = fake.run(request);
  EXPECT_THAT(tokens_of(events), ElementsAre(6, 6, 8)) << "held back while 6 may come";
  EXPECT_EQ(events.back().finish, Finish::kStop);
}

TEST(TokenMask, NanBehindAMaskStillFails) {
  FakeEngine fake;
  fake.model->script = [](std::int32_t, std::int32_t, std::span<float> logits) {
    logits[20] = NAN;
  };
  const auto events = fake.run(masked(always({4}), 3));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].finish, Finish::kFailed);
}

TEST(TokenMask, AllowedIdsThatAreImpossibleFail) {
  FakeEngine fake;
  fake.model->script = [](std::int32_t, std::int32_t, std::span<float> logits) {
    logits[4] = -INFINITY;
  };
  EXPECT_EQ(fake.run(masked(always({4}), 3)).back().finish, Finish::kFailed);
}

// Alternatives come from the raw row: -inf among them is a value, not a failure.
TEST(TokenMask, LogprobsStayThoseOfTheRawRow) {
  FakeEngine fake;
  fake.model->script = [](std::int32_t, std::int32_t, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), -INFINITY);
    logits[3] = 2.0F;
    logits[4] = 0.0F;
  };
  TokenRequest request = masked(always({4}), 1);
  request.top_logprobs = 3;
  const auto events = fake.run(request);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].token, 4);
  EXPECT_NEAR(events[0].logprob.logprob, -2.0 - std::log1p(std::exp(-2.0)), 1e-6);
  ASSERT_EQ(events[0].logprob.top.size(), 3U);
  EXPECT_EQ(events[0].logprob.top[0].first, 3);
  EXPECT_EQ(events[0].logprob.top[2].second, -INFINITY);
}

// A mask that says "anything" costs no answer its draw.
TEST(TokenMask, SwitchedOffItChangesNothing) {
  class Open final : public TokenMask {
   public:
    bool mask(std::span<std::uint32_t> bits) override {
      std::fill(bits.begin(), bits.end(), 0U);
      return false;
    }
    Status accept(std::int32_t /*token*/) override { return {}; }
  };
  FakeEngine fake;
  const auto expected = tokens_of(fake.run(masked(nullptr, 20)));
  EXPECT_EQ(tokens_of(fake.run(masked(std::make_shared<Open>(), 20))), expected);
}

// What was generated before a preemption is not reported again.
TEST(TokenMask, PreemptionDoesNotShow) {
  FakeOptions options;
  options.limits.num_pages[0] = 20;
  FakeEngine fake(options);
  std::vector<std::shared_ptr<ListMask>> masks;
  std::vector<SequenceId> ids;
  for (std::uint64_t i = 0; i < 6; ++i) {
    masks.push_back(always({5, 6, 7}));
    TokenRequest request = masked(masks.back(), 50);
    request.sampling.seed = i;
    ids.push_back(fake.engine->add(request).value());
  }
  const auto events = fake.run();
  EXPECT_GT(fake.engine->scheduler().num_preemptions(), 0);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(masks[i]->accepted.size(), 50U);
    EXPECT_EQ(masks[i]->accepted, tokens_of(events, ids[i]));
  }
}

}  // namespace
}  // namespace nibble::engine
