// The server as a whole, in this process, on the demo checkpoint: for the sanitizers, under which a
// token may take a second.
#include "server/serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "unit/server/socket_client.h"

namespace nibble::server {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// What the server logs, read while it runs.
class LogFile {
 public:
  LogFile() : file_(std::tmpfile()) {}
  ~LogFile() { std::fclose(file_); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  std::FILE* file() const { return file_; }
  std::string text() const {
    std::string out;
    std::array<char, 4096> piece{};
    ssize_t count = 0;
    while ((count = pread(fileno(file_), piece.data(), piece.size(),
                          static_cast<off_t>(out.size()))) > 0) {
      out.append(piece.data(), static_cast<std::size_t>(count));
    }
    return out;
  }
  // The number that follows `before`, once it is there.
  std::int32_t wait_for_number(std::string_view before) const {
    std::string after;
    EXPECT_TRUE(soon([&] {
      const std::string all = text();
      const std::size_t at = all.find(before);
      after = at == std::string::npos ? "" : all.substr(at + before.size());
      return after.find_first_not_of("0123456789") != std::string::npos;
    })) << text();
    return std::atoi(after.c_str());
  }

 private:
  std::FILE* file_;
};

std::string post(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

constexpr const char* kGet = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
constexpr const char* kChat =
    R"({"messages": [{"role": "user", "content": "2+2?"}], "max_tokens": 3, "stream": true})";
constexpr const char* kChoices =
    R"({"prompt": ["Once", "Two"], "n": 2, "max_tokens": 2, "seed": 1})";
constexpr const char* kResponse = R"({"input": "2+2?", "max_output_tokens": 3})";
constexpr const char* kEndless =
    R"({"prompt": "Once", "max_tokens": 12, "ignore_eos": true, "stream": true})";

// One of the kinds of clients. Each gets a whole answer, but for those that leave.
void visit(std::int32_t port, int number) {
  Client client(port);
  switch (number % 6) {
    case 0: {
      client.send(post("/v1/chat/completions", kChat));
      const std::string reply = client.receive();
      EXPECT_THAT(reply, HasSubstr("[DONE]"));
      EXPECT_THAT(reply, EndsWith("0\r\n\r\n"));
      return;
    }
    case 1:
      client.send(post("/v1/completions", kChoices));
      EXPECT_THAT(client.receive(), HasSubstr("\"index\":3"));
      return;
    case 2:
      client.send(post("/v1/responses", kResponse));
      EXPECT_THAT(client.receive(), HasSubstr("\"object\":\"response\""));
      return;
    case 3:  // leaves in the middle
      client.send(post("/v1/completions", kEndless));
      EXPECT_THAT(client.receive_some(), StartsWith("HTTP/1.1 200"));
      return;
    case 4:
      client.send(post("/v1/completions", R"({"prompt": "Once", "max_tokens": -1})"));
      EXPECT_THAT(client.receive(), StartsWith("HTTP/1.1 400"));
      return;
    default:
      client.send(kGet);
      EXPECT_THAT(client.receive(), HasSubstr("nibble:num_requests_running"));
      return;
  }
}

TEST(WholeServer, ManyKindsOfClientsAtOnceAndAnEndInTheirMidst) {
  constexpr int kThreads = 3;
  constexpr int kVisits = 6;
  ServeOptions options;
  options.service.engine = {.model = NIBBLE_SOURCE_DIR "/models/demo",
                            .num_threads = 1,
                            .max_model_len = 256,
                            .max_num_seqs = 4};
  options.listener.port = 0;
  options.shutdown_timeout = std::chrono::hours(1);
  options.api.model_names = {"demo"};
  const LogFile log;
  auto outcome = std::async(std::launch::async, [&] { return serve(options, log.file()); });
  const std::int32_t port = log.wait_for_number("listening url=http://127.0.0.1:");
  ASSERT_TRUE(soon([&] { return log.text().find(" ready ") != std::string::npos; }));
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([port, thread] {
      for (int i = 0; i < kVisits; ++i) {
        visit(port, thread + i);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const Client running(port);
  running.send(post("/v1/completions", kEndless));
  const std::string begun = running.receive_some();
  EXPECT_THAT(begun, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(begun, testing::Not(HasSubstr("[DONE]")));
  std::raise(SIGTERM);
  EXPECT_THAT(running.receive(), EndsWith("0\r\n\r\n")) << "what runs is finished";
  const ServeOutcome end = outcome.get();
  EXPECT_EQ(end.end, ServeEnd::kDrained) << log.text();
  EXPECT_EQ(end.signal, SIGTERM);
}

}  // namespace
}  // namespace nibble::server
