// The way back of one request, over a connection that records what is written.
#include "server/connection_exchange.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace nibble::server {
namespace {

class RecordingChannel final : public ReplyChannel {
 public:
  const asio::any_io_executor& executor() const override { return executor_; }
  void append(std::string_view bytes) override { written += bytes; }
  void wake() override {}
  void cut() override { ++num_cuts; }
  bool keeps_alive() const override { return true; }
  void refuse_more() override {}
  HttpReply internal_error() const override { return {.status = 500}; }

  // Runs what was posted.
  void run() {
    io_.restart();
    io_.run();
  }

  std::string written;
  int num_cuts = 0;

 private:
  asio::io_context io_;
  asio::any_io_executor executor_ = io_.get_executor();
};

struct Fixture {
  std::shared_ptr<RecordingChannel> channel = std::make_shared<RecordingChannel>();
  std::shared_ptr<ConnectionExchange> exchange =
      std::make_shared<ConnectionExchange>(channel, false, true);
};

// A job holds its exchange and an action holds the job: one that stays would keep all three.
TEST(ConnectionExchange, HoldsNoActionThatComesAfterTheEnd) {
  for (const bool has_left : {false, true}) {
    Fixture one;
    has_left ? one.exchange->leave() : one.exchange->reply({});
    const auto held = std::make_shared<int>();
    int num_calls = 0;
    one.exchange->when_gone([held, &num_calls] { ++num_calls; });
    one.exchange->when_late(std::chrono::hours(1), [held] {});
    EXPECT_EQ(held.use_count(), 1) << has_left;
    EXPECT_EQ(one.exchange->deadline(), ConnectionExchange::Clock::time_point::max());
    one.exchange->leave();
    EXPECT_EQ(num_calls, has_left ? 1 : 0) << "who comes too late is told at once";
  }
}

TEST(ConnectionExchange, ForgetsItsActionsAtTheEnd) {
  Fixture one;
  const auto held = std::make_shared<int>();
  one.exchange->when_gone([held] {});
  one.exchange->when_late(std::chrono::hours(1), [held] {});
  EXPECT_EQ(held.use_count(), 3);
  one.exchange->reply({});
  EXPECT_EQ(held.use_count(), 1);
}

// What works for the request must not go on for nobody.
TEST(ConnectionExchange, AMistakeInAHandlerTellsWhatWorksForIt) {
  for (const bool is_stream : {false, true}) {
    Fixture one;
    int num_calls = 0;
    one.exchange->when_gone([&num_calls] {
      ++num_calls;
      throw std::runtime_error("another");
    });
    if (is_stream) {
      one.exchange->begin_stream({});
    }
    one.exchange->post([] { throw std::runtime_error("mistake"); });
    one.channel->run();
    EXPECT_EQ(num_calls, 1);
    EXPECT_EQ(one.channel->num_cuts, is_stream ? 1 : 0);
    EXPECT_EQ(one.channel->written.starts_with("HTTP/1.1 500 "), !is_stream);
  }
}

// The connection is about the next request by then.
TEST(ConnectionExchange, AMistakeAfterTheEndOfAStreamCutsNothing) {
  Fixture one;
  one.exchange->begin_stream({});
  one.exchange->end_stream();
  const std::string written = one.channel->written;
  one.exchange->post([] { throw std::runtime_error("mistake"); });
  one.channel->run();
  EXPECT_EQ(one.channel->num_cuts, 0);
  EXPECT_EQ(one.channel->written, written);
}

TEST(ConnectionExchange, AMistakeInALateActionEndsTheRequestOnly) {
  Fixture one;
  one.exchange->when_late(std::chrono::milliseconds(1), [] { throw std::runtime_error("late"); });
  while (ConnectionExchange::Clock::now() < one.exchange->deadline()) {
  }
  one.exchange->check_time();
  EXPECT_TRUE(one.exchange->is_over());
  EXPECT_TRUE(one.channel->written.starts_with("HTTP/1.1 500 "));
}

}  // namespace
}  // namespace nibble::server
