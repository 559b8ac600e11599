// Large requests are handled beside the threads that serve HTTP.
#include "server/aside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

#include "unit/server/client_view.h"
#include "unit/server/scripted_api.h"

namespace nibble::server {
namespace {

using testing::ElementsAre;

// The API with a thread aside that works when the test says so.
struct AsideApi : Api {
  AsideApi() {
    context.run_aside = [this](std::function<void()> work) { aside.push_back(std::move(work)); };
  }
  void ask(TestJson body, const std::shared_ptr<RecordingExchange>& exchange,
           const std::string& path = "/v1/completions") {
    body["padding"] = std::string(100'000, 'x');
    make_api(context)({.method = "POST",
                       .path = path,
                       .headers = {{"x-request-id", "mine"}},
                       .body = body.dump()},
                      exchange);
  }
  std::vector<std::function<void()>> aside;
};

TEST(Aside, RunsInOrderAndDropsTheRestAtItsEnd) {
  std::vector<int> seen;
  std::promise<void> reached;
  std::promise<void> go_on;
  {
    Aside aside;
    aside.run([&] { seen.push_back(1); });
    aside.run([&] {
      seen.push_back(2);
      reached.set_value();
      go_on.get_future().wait();
    });
    aside.run([&] { seen.push_back(3); });
    reached.get_future().wait();
    aside.run([&] { seen.push_back(4); });
    go_on.set_value();
  }
  ASSERT_GE(seen.size(), 2U);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i], static_cast<int>(i) + 1);
  }
}

TEST(Aside, LargeRequestsAreAnsweredFromItAsOthersAre) {
  AsideApi api;
  api.host->script = "one two";
  for (const bool is_stream : {false, true}) {
    const TestJson body = {{"prompt", "a"}, {"stream", is_stream}};
    const Reply small = api.post("/v1/completions", body);
    EXPECT_TRUE(api.aside.empty());
    Reply reply;
    const auto exchange = std::make_shared<RecordingExchange>(reply);
    api.ask(body, exchange);
    ASSERT_EQ(api.aside.size(), 1U);
    EXPECT_EQ(api.context.num_open, 1) << "a drain waits for it";
    exchange->run();
    EXPECT_EQ(reply.status, 0);
    std::exchange(api.aside, {}).front()();
    EXPECT_EQ(reply.status, 0) << "only on its own executor";
    exchange->run();
    EXPECT_EQ(reply.status, 200);
    EXPECT_TRUE(reply.has_ended);
    EXPECT_EQ(reply.headers.at("x-request-id"), "mine");
    EXPECT_EQ(reply.headers.at("content-type"), small.headers.at("content-type"));
    if (is_stream) {
      std::string text;
      for (const TestJson& event : reply.events()) {
        text += event["choices"][0]["text"].get<std::string>();
      }
      EXPECT_EQ(text, "one two");
    } else {
      EXPECT_EQ(reply.json()["choices"], small.json()["choices"]);
    }
    EXPECT_EQ(api.context.num_open, 0);
  }
}

TEST(Aside, WhatIsRefusedIsRefusedFromItToo) {
  AsideApi api;
  Reply reply;
  const auto exchange = std::make_shared<RecordingExchange>(reply);
  api.ask({{"prompt", "a"}, {"max_tokens", -1}}, exchange);
  api.aside.front()();
  exchange->run();
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["param"], "max_tokens");
}

// Deltas that come while the handler still runs wait for the head of their stream.
TEST(Aside, DeltasWaitForTheHeadOfTheirStream) {
  AsideApi api;
  api.host->waits = true;
  Reply reply;
  const auto exchange = std::make_shared<RecordingExchange>(reply);
  api.ask({{"prompt", "a"}, {"stream", true}}, exchange);
  api.aside.front()();
  RequestSink& sink = api.host->waiting.at(0);
  sink.on_delta({.kind = Delta::Kind::kContent, .text = "early "});
  EXPECT_TRUE(reply.chunks.empty());
  exchange->run();
  sink.on_delta({.kind = Delta::Kind::kContent, .text = "late"});
  sink.on_end(Response{.content = "early late"});
  exchange->run();
  std::string text;
  for (const TestJson& event : reply.events()) {
    text += event["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "early late");
  EXPECT_TRUE(reply.has_ended);
}

TEST(Aside, AMistakeReachesTheTransport) {
  Reply reply;
  const auto exchange = std::make_shared<RecordingExchange>(reply);
  const auto held = std::make_shared<HeldExchange>(exchange);
  handle_aside([](const std::function<void()>& work) { work(); }, exchange, held,
               [&] {
                 held->begin_stream({});
                 throw std::runtime_error("a mistake");
               });
  EXPECT_THROW(exchange->run(), std::runtime_error);
  EXPECT_TRUE(reply.is_stream) << "after what came before it";
}

}  // namespace
}  // namespace nibble::server
