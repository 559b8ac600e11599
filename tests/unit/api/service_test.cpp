// Many requests from many threads, over a model that is arithmetic, and once over a checkpoint.
#include "nibble/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <set>
#include <thread>

#include "api/service_loop.h"
#include "nibble/choices.h"
#include "unit/engine/fake_model.h"

namespace nibble {
namespace {

using namespace std::chrono_literals;

constexpr auto kLong = 60s;  // that nothing hangs

struct FakeService {
  explicit FakeService(std::int32_t max_active = 1000, std::int32_t num_pages = 40) {
    engine::FakeOptions options;
    options.limits.num_pages[0] = num_pages;  // few: sequences take them from each other
    options.limits.num_pages[1] = engine::window_pages(options.limits);
    auto owned = std::make_unique<engine::FakeModel>(options);
    fake = owned.get();
    TextModel model;
    model.info.vocab_size = options.vocab;
    model.info.max_model_len = options.max_position;
    model.engine = std::make_unique<engine::TokenEngine>(std::move(owned), options.limits);
    loop = std::make_unique<ServiceLoop>(std::move(model), max_active);
  }

  engine::FakeModel* fake = nullptr;
  std::unique_ptr<ServiceLoop> loop;
};

Request request(std::int32_t first, std::int32_t num_prompt, std::int32_t max_tokens) {
  Request out{.prompt = TokenPrompt{engine::counting_prompt(num_prompt, first)},
              .max_tokens = max_tokens};
  out.sampling.temperature = 1.0F;
  out.sampling.seed = static_cast<std::uint64_t>(first);
  return out;
}

// A sink that keeps everything, and the promise of its end.
struct Kept {
  std::promise<Result<Response>> promise;
  std::future<Result<Response>> end = promise.get_future();
  std::vector<std::int32_t> streamed;
  std::int32_t num_tokens = 0;
  std::function<bool()> on_each = [] { return true; };

  RequestSink sink() {
    return {.on_delta =
                [this](const Delta& delta) {
                  for (const TokenLogprob& token : delta.tokens) {
                    streamed.push_back(token.id);
                  }
                  return on_each();
                },
            .on_token =
                [this](std::int32_t count, double gap_ms) {
                  EXPECT_EQ(count, ++num_tokens);
                  EXPECT_GE(gap_ms, 0.0);
                },
            .on_end = [this](Result<Response> result) { promise.set_value(std::move(result)); }};
  }
  Result<Response> wait() {
    EXPECT_EQ(end.wait_for(kLong), std::future_status::ready);
    return end.get();
  }
};

std::vector<std::int32_t> answer_alone(std::int32_t first, std::int32_t num_prompt,
                                       std::int32_t max_tokens) {
  FakeService service;
  Kept kept;
  EXPECT_TRUE(service.loop->submit(request(first, num_prompt, max_tokens), kept.sink()));
  return kept.wait()->ids;
}

void expect_nothing_held(const ServiceLoop& loop) {
  EXPECT_TRUE(loop.wait_until_idle(kLong));
  const ServiceStats stats = loop.stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.full_pages.used, 0);
  EXPECT_EQ(stats.window_pages.used, 0);
  EXPECT_GT(stats.full_pages.total, 0);
}

TEST(Service, AnswersManyThreadsAsItAnswersOne) {
  constexpr int kThreads = 4;
  constexpr int kEach = 8;
  constexpr int kCount = kThreads * kEach;
  std::vector<std::vector<std::int32_t>> want(kCount);
  for (int i = 0; i < kCount; ++i) {
    want[static_cast<std::size_t>(i)] = answer_alone(i, 1 + i, 5 + i);
  }
  FakeService service;
  std::vector<Kept> kept(kCount);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = thread * kEach; i < (thread + 1) * kEach; ++i) {
        EXPECT_TRUE(service.loop->submit(request(i, 1 + i, 5 + i),
                                         kept[static_cast<std::size_t>(i)].sink()));
        EXPECT_LE(service.loop->stats().running, 8);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::int64_t prompt_tokens = 0;
  std::int64_t generated = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const Result<Response> response = kept[i].wait();
    ASSERT_TRUE(response.has_value());
    EXPECT_EQ(response->ids, want[i]);
    EXPECT_EQ(kept[i].streamed, response->ids);
    EXPECT_EQ(response->finish_reason, FinishReason::kLength);
    prompt_tokens += response->usage.prompt_tokens;
    generated += response->usage.completion_tokens;
  }
  expect_nothing_held(*service.loop);
  const ServiceStats stats = service.loop->stats();
  EXPECT_EQ(stats.ended, kCount);
  EXPECT_EQ(stats.prompt_tokens, prompt_tokens);
  EXPECT_EQ(stats.generation_tokens, generated);
}

TEST(Service, CancelAtAnyPointFreesEverythingAndEndsOnce) {
  FakeService service;
  std::mt19937 random(7);
  std::vector<Kept> kept(150);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const auto id = service.loop->submit(
        request(static_cast<std::int32_t>(i), 1 + static_cast<std::int32_t>(random() % 60), 40),
        kept[i].sink());
    ASSERT_TRUE(id.has_value());
    if (random() % 4 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    }
    service.loop->cancel(*id);
    service.loop->cancel(*id);
    service.loop->cancel(1 + random() % *id);
  }
  for (Kept& one : kept) {  // a second end would break the promise and stop the program
    const Result<Response> response = one.wait();
    ASSERT_TRUE(response.has_value());
    EXPECT_TRUE(response->finish_reason == FinishReason::kCancelled ||
                response->finish_reason == FinishReason::kLength);
    EXPECT_EQ(one.streamed, response->ids);
  }
  expect_nothing_held(*service.loop);
}

TEST(Service, ReaderThatGivesUpCancels) {
  FakeService service;
  Kept kept;
  int left = 3;
  kept.on_each = [&left] { return --left > 0; };
  ASSERT_TRUE(service.loop->submit(request(1, 5, 100), kept.sink()));
  const Result<Response> response = kept.wait();
  EXPECT_EQ(response->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(response->ids.size(), 3U);
  expect_nothing_held(*service.loop);
}

TEST(Service, FullQueueRefusesAtOnceAndTakesAgainLater) {
  FakeService service(2);
  Kept first;
  std::promise<void> gate;
  std::shared_future<void> opened = gate.get_future().share();
  first.on_each = [opened] {
    opened.wait();
    return true;
  };
  Kept second;
  Kept third;
  ASSERT_TRUE(service.loop->submit(request(1, 3, 4), first.sink()));
  ASSERT_TRUE(service.loop->submit(request(2, 3, 4), second.sink()));
  const auto refused = service.loop->submit(request(3, 3, 4), third.sink());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kExhausted);
  EXPECT_THAT(refused.error().message(), testing::HasSubstr("2 requests"));
  gate.set_value();
  EXPECT_TRUE(first.wait().has_value());
  EXPECT_TRUE(second.wait().has_value());
  EXPECT_TRUE(service.loop->wait_until_idle(kLong));
  ASSERT_TRUE(service.loop->submit(request(3, 3, 4), third.sink()));
  EXPECT_TRUE(third.wait().has_value());
}

std::vector<RequestSink> sinks_of(std::vector<Kept>& kept) {
  std::vector<RequestSink> out;
  out.reserve(kept.size());
  for (Kept& one : kept) {
    out.push_back(one.sink());
  }
  return out;
}

TEST(Service, AnswersToOnePromptAreThoseOfRequestsOfTheirOwn) {
  Request wanted = request(3, 9, 12);
  wanted.top_logprobs = 1;
  wanted.prompt_logprobs = 0;
  FakeService service;
  std::vector<Kept> kept(5);
  const auto ids = service.loop->submit(wanted, sinks_of(kept));
  ASSERT_TRUE(ids.has_value());
  EXPECT_EQ(std::set(ids->begin(), ids->end()).size(), 5U);
  const std::vector<Request> choices = choices_of(wanted, 5);
  std::set<std::vector<std::int32_t>> different;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    FakeService alone;
    Kept own;
    ASSERT_TRUE(alone.loop->submit(choices[i], own.sink()));
    const Result<Response> want = own.wait();
    const Result<Response> found = kept[i].wait();
    EXPECT_EQ(found->ids, want->ids);
    EXPECT_EQ(found->seed, choices[i].sampling.seed);
    EXPECT_EQ(found->cumulative_logprob, want->cumulative_logprob);
    EXPECT_EQ(found->prompt_logprobs.size(), i == 0 ? 9U : 0U) << "the prompt is scored once";
    different.insert(found->ids);
  }
  EXPECT_EQ(different.size(), 5U);
  wanted.sampling.seed.reset();
  std::vector<Kept> unseeded(2);
  ASSERT_TRUE(service.loop->submit(wanted, sinks_of(unseeded)));
  EXPECT_NE(unseeded[0].wait()->seed, unseeded[1].wait()->seed);
  expect_nothing_held(*service.loop);
}

TEST(Service, AnswersToOnePromptAreAcceptedTogetherOrNotAtAll) {
  FakeService service(3);
  std::vector<Kept> four(4);
  const auto refused = service.loop->submit(request(1, 3, 4), sinks_of(four));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kExhausted);
  EXPECT_EQ(service.loop->stats().waiting + service.loop->stats().running, 0);
  std::vector<Kept> three(3);
  ASSERT_TRUE(service.loop->submit(request(1, 3, 4), sinks_of(three)));
  for (Kept& one : three) {
    EXPECT_TRUE(one.wait().has_value());
  }
  expect_nothing_held(*service.loop);
}

TEST(Service, WrongRequestsAreRefusedBeforeTheyCostAnything) {
  FakeService service;
  Kept kept;
  Request outside = request(1, 3, 4);
  outside.stop_token_ids = {32};
  Request too_long = request(1, 10, 191);
  too_long.max_tokens_must_fit = true;
  for (const Request& wrong : {request(1, 0, 4), request(1, 200, 1), outside, too_long}) {
    const auto refused = service.loop->submit(wrong, kept.sink());
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument) << refused.error().message();
  }
  too_long.max_tokens = 190;
  too_long.ignore_eos = true;
  FakeService roomy(10, 400);
  ASSERT_TRUE(roomy.loop->submit(too_long, kept.sink()));
  EXPECT_EQ(kept.wait()->ids.size(), 190U);
}

TEST(Service, FailedDeviceEndsEverythingAndRefusesTheRest) {
  FakeService service;
  Kept first;
  Kept second;
  std::promise<void> both_are_there;
  std::shared_future<void> go = both_are_there.get_future().share();
  first.on_each = [&service, go] {
    go.wait();
    service.fake->fail_next = Status(Code::kDevice, "lost");
    return true;
  };
  ASSERT_TRUE(service.loop->submit(request(1, 3, 50), first.sink()));
  ASSERT_TRUE(service.loop->submit(request(2, 3, 50), second.sink()));
  both_are_there.set_value();
  EXPECT_EQ(first.wait().error().message(), "lost");
  EXPECT_EQ(second.wait().error().code(), Code::kDevice);
  Kept third;
  EXPECT_EQ(service.loop->submit(request(3, 3, 4), third.sink()).error().message(), "lost");
  EXPECT_EQ(service.loop->stats().state, ServiceState::kFailed);
  EXPECT_EQ(service.loop->stats().failure.code(), Code::kDevice);
  expect_nothing_held(*service.loop);
}

TEST(Service, OneFailedStepLeavesTheServiceAlive) {
  FakeService service;
  service.fake->fail_next = Status(Code::kInternal, "NaN");
  Kept first;
  ASSERT_TRUE(service.loop->submit(request(1, 3, 50), first.sink()));
  EXPECT_EQ(first.wait().error().message(), "NaN");
  Kept second;
  ASSERT_TRUE(service.loop->submit(request(1, 3, 4), second.sink()));
  EXPECT_EQ(second.wait()->ids.size(), 4U);
  EXPECT_EQ(service.loop->stats().state, ServiceState::kServing);
  expect_nothing_held(*service.loop);
}

TEST(Service, DrainFinishesWhatItHasAndStopEndsTheRest) {
  FakeService service;
  Kept first;
  ASSERT_TRUE(service.loop->submit(request(1, 3, 30), first.sink()));
  service.loop->drain();
  Kept refused;
  EXPECT_EQ(service.loop->submit(request(2, 3, 4), refused.sink()).error().code(),
            Code::kCancelled);
  EXPECT_EQ(service.loop->stats().state, ServiceState::kDraining);
  EXPECT_TRUE(service.loop->wait_until_idle(kLong));
  EXPECT_EQ(first.wait()->ids.size(), 30U);

  FakeService other;
  Kept open;
  std::promise<void> begun;
  bool is_first = true;
  open.on_each = [&] {
    if (std::exchange(is_first, false)) {
      begun.set_value();
    }
    return true;
  };
  Request endless = request(4, 3, -1);
  ASSERT_TRUE(other.loop->submit(endless, open.sink()));
  begun.get_future().wait();
  other.loop->stop();
  other.loop->stop();
  const Result<Response> response = open.wait();
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(open.streamed, response->ids);
  expect_nothing_held(*other.loop);
  EXPECT_FALSE(other.loop->submit(request(2, 3, 4), refused.sink()).has_value());
}

TEST(Service, AnswersAsTheEngineOnACheckpoint) {
  const std::string tiny = NIBBLE_SOURCE_DIR "/tests/golden/tiny";
  const EngineOptions options{
      .model = tiny, .num_threads = 1, .max_model_len = 256, .max_num_seqs = 4};
  Result<Service> service = Service::start({.engine = options, .max_queued = 8});
  ASSERT_TRUE(service.has_value()) << service.error().message();
  EXPECT_EQ(service->info().max_model_len, 256);
  std::vector<Request> requests;
  std::vector<Kept> kept(6);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    Request wanted = request(static_cast<std::int32_t>(i), 2 + static_cast<std::int32_t>(i), 10);
    wanted.ignore_eos = true;
    ASSERT_TRUE(service->submit(wanted, kept[i].sink()));
    requests.push_back(wanted);
  }
  Engine engine = *Engine::load(options);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].wait()->ids, engine.generate(requests[i])->ids) << i;
  }
}

}  // namespace
}  // namespace nibble
