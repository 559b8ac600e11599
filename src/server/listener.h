// Sockets, threads and signals of the server: accepts connections until it is told to end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "nibble/status.h"
#include "server/http.h"

namespace nibble::server {

struct ListenerOptions {
  std::string host = "127.0.0.1";
  std::int32_t port = 8000;  // 0: any free one
  std::string uds;           // path of a Unix socket, instead of host and port
  std::string certificate;   // with key: TLS
  std::string key;
  std::int32_t num_threads = 2;
  std::int32_t max_connections = 10'000;  // more are closed at once
  std::int64_t max_header_bytes = 16 << 10;
  std::int64_t max_body_bytes = 32 << 20;
  std::int64_t stream_buffer_bytes = 256 << 10;
  std::chrono::milliseconds idle_timeout{75'000};
  std::chrono::milliseconds read_timeout{30'000};
  std::chrono::milliseconds write_timeout{30'000};
};

struct ListenerHooks {
  Handler handler;
  std::function<HttpReply(int status, const std::string& message)> malformed;
  std::function<void(int signal)> on_signal;  // SIGINT and SIGTERM; empty: not caught
  std::function<void()> on_tick;              // about once a second, one at a time; may be empty
  std::function<bool()> is_closing = [] { return false; };
};

// What went wrong, and whether it was the address.
struct ListenFailure {
  Status status;
  bool is_address_in_use = false;
};

class Listener {
 public:
  // Binds and begins to answer. A Unix socket that nobody serves any more is replaced.
  static std::unique_ptr<Listener> open(const ListenerOptions& options, ListenerHooks hooks,
                                        ListenFailure& failure);
  ~Listener();

  std::string url() const;  // http://host:port, with the port that was chosen
  std::int32_t port() const;
  std::int32_t num_connections() const;
  // Those with a request that is not answered to its last byte.
  std::int32_t num_answering() const;

  // Closes everything and ends the threads.
  void close();

 private:
  struct Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble::server
