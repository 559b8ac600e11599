// Sockets and threads of the server below the API: handlers are written here, clients are plain
// sockets. Also run under the thread sanitizer.
#include "server/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unit/server/socket_client.h"

namespace nibble::server {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

std::unique_ptr<Listener> listen(Handler handler, ListenerOptions options = {}) {
  options.port = 0;
  ListenFailure failure;
  auto listener = Listener::open(options,
                                 {.handler = std::move(handler),
                                  .malformed =
                                      [](int status, const std::string& message) {
                                        return HttpReply{.status = status, .body = message};
                                      }},
                                 failure);
  EXPECT_NE(listener, nullptr) << failure.status.message();
  return listener;
}

std::string get(std::string_view path, std::string_view headers = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nhost: x\r\n" + std::string(headers) + "\r\n";
}

void echo_path(const HttpRequest& request, const ExchangePtr& exchange) {
  exchange->reply({.body = request.path + " " + request.body});
}

TEST(Listener, PipelinedRequestsAreAnsweredInOrder) {
  const auto listener = listen(&echo_path);
  const Client client(listener->port());
  std::string requests;
  for (int i = 0; i < 200; ++i) {
    requests += get("/" + std::to_string(i) + ".");
  }
  client.send(requests + get("/last", "connection: close\r\n"));
  const std::string replies = client.receive();
  std::size_t at = 0;
  for (int i = 0; i < 200; ++i) {
    at = replies.find("/" + std::to_string(i) + ".", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_NE(replies.find("/last", at), std::string::npos);
}

TEST(Listener, RequestsAreLimitedInSizeAndTime) {
  const auto listener =
      listen(&echo_path, {.max_header_bytes = 1024, .max_body_bytes = 100, .read_timeout = 50ms});
  const std::string post = "POST / HTTP/1.1\r\nhost: x\r\n";
  const std::pair<std::string, const char*> cases[] = {
      {post + "content-length: 100\r\nconnection: close\r\n\r\n" + std::string(100, 'b'), "200"},
      {post + "content-length: 101\r\n\r\n" + std::string(101, 'b'), "413"},
      {post + "transfer-encoding: chunked\r\n\r\n65\r\n" + std::string(101, 'b') + "\r\n0\r\n\r\n",
       "413"},
      {get("/", "a: " + std::string(2000, 'h') + "\r\n"), "431"},
      {"GET / HT", "408"},
      {post + "content-length: 5\r\n\r\nfour", "408"},
      {"GET / HTTP/1.1\r\nno colon\r\n\r\n", "400"},
  };
  for (const auto& [request, status] : cases) {
    const Client client(listener->port());
    client.send(request);
    EXPECT_THAT(client.receive(), StartsWith(std::string("HTTP/1.1 ") + status)) << request;
  }
}

TEST(Listener, AHandlerThatThrowsCostsItsRequestAlone) {
  const auto listener = listen([](const HttpRequest& request, const ExchangePtr& exchange) {
    if (request.path == "/throw") {
      throw std::runtime_error("a mistake");
    }
    if (request.path == "/later") {
      exchange->post([] { throw std::runtime_error("a mistake"); });
      return;
    }
    if (request.path == "/stream") {
      exchange->begin_stream({});
      exchange->send("part");
      exchange->post([] { throw std::runtime_error("a mistake"); });
      return;
    }
    exchange->reply({.body = "fine"});
  });
  const Client client(listener->port());
  for (const char* path : {"/throw", "/later"}) {
    client.send(get(path));
    EXPECT_THAT(client.receive("the server made a mistake"), StartsWith("HTTP/1.1 500")) << path;
  }
  client.send(get("/") + get("/stream"));
  const std::string rest = client.receive();
  EXPECT_THAT(rest, HasSubstr("fine"));
  EXPECT_THAT(rest, testing::Not(testing::EndsWith("0\r\n\r\n"))) << "a broken stream has no end";
  EXPECT_TRUE(soon([&] { return listener->num_connections() == 0; }));
}

TEST(Listener, StreamsOfOldClientsEndWithTheConnection) {
  const auto listener = listen([](const HttpRequest&, const ExchangePtr& exchange) {
    exchange->begin_stream({.content_type = "text/plain"});
    exchange->send("one ");
    exchange->send("two");
    exchange->end_stream();
  });
  const Client old(listener->port());
  old.send("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
  const std::string whole = old.receive();
  EXPECT_THAT(whole, testing::EndsWith("\r\n\r\none two"));
  EXPECT_THAT(whole, HasSubstr("connection: close"));
  const Client client(listener->port());
  client.send(get("/"));
  EXPECT_THAT(client.receive("0\r\n\r\n"),
              testing::EndsWith("\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"));
}

// What a stream does until it is told that nobody listens.
struct Endless {
  std::atomic<int> num_gone{0};
  std::atomic<int> num_begun{0};
  std::mutex mutex;
  std::vector<std::thread> threads;

  Handler handler() {
    return [this](const HttpRequest&, const ExchangePtr& exchange) {
      auto is_gone = std::make_shared<std::atomic<bool>>(false);
      exchange->when_gone([this, is_gone] {
        *is_gone = true;
        ++num_gone;
      });
      exchange->begin_stream({});
      ++num_begun;
      const std::lock_guard lock(mutex);
      threads.emplace_back([exchange, is_gone] {
        while (!*is_gone) {
          exchange->post([exchange] { exchange->send(std::string(1000, 'x')); });
          std::this_thread::sleep_for(100us);
        }
      });
    };
  }
  ~Endless() {
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
};

TEST(Listener, ClientsThatLeaveAreNoticed) {
  Endless streams;
  const auto listener = listen(streams.handler());
  constexpr int kCount = 16;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kCount; ++i) {
    clients.push_back(std::make_unique<Client>(listener->port()));
    clients.back()->send(get("/"));
  }
  EXPECT_TRUE(soon([&] { return streams.num_begun == kCount; }));
  for (int i = 0; i < kCount; ++i) {
    if (i % 2 == 0) {
      (void)clients[static_cast<std::size_t>(i)]->receive("x");
    }
    clients[static_cast<std::size_t>(i)]->close();
  }
  EXPECT_TRUE(soon([&] { return streams.num_gone == kCount; }));
  EXPECT_TRUE(soon([&] { return listener->num_connections() == 0; }));
}

// A handler that works elsewhere may ask only then.
TEST(Listener, AClientThatHasLeftIsToldToThoseWhoAskLater) {
  std::promise<ExchangePtr> asked;
  std::atomic<int> num_told{0};
  const auto listener = listen([&](const HttpRequest&, const ExchangePtr& exchange) {
    exchange->when_gone([&] { ++num_told; });
    asked.set_value(exchange);
  });
  Client client(listener->port());
  client.send(get("/"));
  ExchangePtr exchange = asked.get_future().get();
  client.close();
  EXPECT_TRUE(soon([&] { return num_told == 1; }));
  exchange->post([&, exchange] { exchange->when_gone([&] { ++num_told; }); });
  exchange.reset();
  EXPECT_TRUE(soon([&] { return num_told == 2; }));
  EXPECT_TRUE(soon([&] { return listener->num_connections() == 0; }));
}

// Neither the buffers of the system nor those of the server grow for a client that does not read.
TEST(Listener, AStreamThatNobodyReadsIsCut) {
  Endless streams;
  const auto listener =
      listen(streams.handler(), {.stream_buffer_bytes = 16 << 10, .write_timeout = 1h});
  const Client silent(listener->port(), 4096);
  silent.send(get("/"));
  EXPECT_TRUE(soon([&] { return streams.num_gone == 1; }))
      << "by its buffer, long before a timeout";
  EXPECT_TRUE(soon([&] { return listener->num_connections() == 0; }));
  EXPECT_LT(silent.receive().size(), std::size_t{1} << 20U);
}

TEST(Listener, AReplyThatNobodyReadsIsCutByTime) {
  const auto listener = listen(
      [](const HttpRequest&, const ExchangePtr& exchange) {
        exchange->reply({.body = std::string(std::size_t{16} << 20U, 'x')});
      },
      {.write_timeout = 50ms});
  const Client silent(listener->port(), 4096);
  silent.send(get("/"));
  EXPECT_TRUE(soon([&] { return listener->num_connections() == 1; }));
  EXPECT_TRUE(soon([&] { return listener->num_connections() == 0; }));
}

TEST(Listener, AReplyIsOpenUntilItsLastByteIsTaken) {
  constexpr std::size_t kBytes = std::size_t{16} << 20U;
  const auto listener = listen([](const HttpRequest&, const ExchangePtr& exchange) {
    exchange->reply({.body = std::string(kBytes, 'x')});
  });
  const Client client(listener->port(), 4096);
  EXPECT_EQ(listener->num_answering(), 0);
  client.send(get("/"));
  EXPECT_THAT(client.receive("x"), HasSubstr("200 OK"));
  EXPECT_EQ(listener->num_answering(), 1);
  client.send(get("/", "connection: close\r\n"));
  EXPECT_GT(client.receive().size(), 2 * kBytes - (std::size_t{1} << 20U));
  EXPECT_TRUE(soon([&] { return listener->num_answering() == 0; }));
}

TEST(Listener, WorkOfManyThreadsRunsInOrderOnOneExchange) {
  constexpr int kEach = 200;
  std::mutex mutex;
  std::vector<std::thread> threads;
  const auto listener = listen([&](const HttpRequest&, const ExchangePtr& exchange) {
    exchange->begin_stream({});
    auto num_left = std::make_shared<std::atomic<int>>(2);
    for (const char name : {'a', 'b'}) {
      const std::lock_guard lock(mutex);
      threads.emplace_back([exchange, name, num_left] {
        for (int i = 0; i < kEach; ++i) {
          exchange->post([exchange, name, i] { exchange->send(name + std::to_string(i) + ";"); });
        }
        if (--*num_left == 0) {
          exchange->post([exchange] { exchange->end_stream(); });
        }
      });
    }
  });
  std::vector<std::future<std::string>> clients;
  clients.reserve(8);
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::async(std::launch::async, [&] {
      const Client client(listener->port());
      client.send(get("/", "connection: close\r\n"));
      return client.receive();
    }));
  }
  for (auto& client : clients) {
    const std::string text = client.get();
    for (const char name : {'a', 'b'}) {
      std::size_t at = 0;
      for (int i = 0; i < kEach; ++i) {
        at = text.find(name + std::to_string(i) + ";", at);
        ASSERT_NE(at, std::string::npos) << name << i;
      }
    }
    EXPECT_THAT(text, testing::EndsWith("0\r\n\r\n"));
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Listener, ClosesWhileStreamsRun) {
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<ExchangePtr> kept;
  std::mutex mutex;
  auto listener = listen([&](const HttpRequest&, const ExchangePtr& exchange) {
    exchange->begin_stream({});
    exchange->send("x");
    const std::lock_guard lock(mutex);
    kept.push_back(exchange);
  });
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<Client>(listener->port()));
    clients.back()->send(get("/"));
    EXPECT_THAT(clients.back()->receive("x\r\n"), HasSubstr("200 OK"));
  }
  listener->close();
  for (const ExchangePtr& exchange : kept) {
    exchange->post([] { ADD_FAILURE() << "nothing runs any more"; });
  }
  kept.clear();
  listener.reset();
  for (const auto& client : clients) {
    EXPECT_EQ(client->receive(), "");
  }
}

}  // namespace
}  // namespace nibble::server
