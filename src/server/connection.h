// One client: reads requests, hands each to the handler, writes what comes back.
//
// HTTP/1.1 with keep-alive, pipelining (answered in order, one at a time), chunked bodies and
// Expect: 100-continue. Reading goes on while a request is answered, so that a client that leaves
// is noticed at once; the end of what a client sends counts as leaving.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "server/http.h"
#include "server/wire.h"

namespace nibble::server {

struct ConnectionLimits {
  std::int64_t header_bytes = 16 << 10;
  std::int64_t body_bytes = 32 << 20;
  std::int64_t stream_bytes = 256 << 10;    // written but not taken by the client
  std::chrono::milliseconds idle{75'000};   // between requests
  std::chrono::milliseconds read{30'000};   // for a whole head, and between pieces of a body
  std::chrono::milliseconds write{30'000};  // without one byte taken
};

// What all connections share. Outlives them.
struct ConnectionContext {
  ConnectionLimits limits;
  Handler handler;
  // The reply when a request cannot even be parsed.
  std::function<HttpReply(int status, const std::string& message)> malformed;
  // Connections with a request whose reply is not yet taken by the system; may be null.
  std::atomic<std::int32_t>* num_answering = nullptr;
  // No further request on this connection: the server is about to end.
  std::function<bool()> is_closing = [] { return false; };
};

// Runs on `executor`, one strand for each connection, until the client or `close_when_idle` ends
// it; `when_over` is its last act.
void start_connection(const asio::any_io_executor& executor, std::unique_ptr<Wire> wire,
                      const ConnectionContext& context, std::function<void()> when_over);

}  // namespace nibble::server
