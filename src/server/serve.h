// The server as a whole: listens, loads the model, answers until a signal, drains.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "nibble/service.h"
#include "server/api_context.h"
#include "server/listener.h"
#include "server/log.h"

namespace nibble::server {

struct ServeOptions {
  ServiceOptions service;
  ListenerOptions listener;
  ApiOptions api;
  std::chrono::milliseconds shutdown_timeout{30'000};
  std::chrono::milliseconds status_interval{10'000};  // 0: no status lines
  bool is_json_log = false;
  LogLevel log_level = LogLevel::kInfo;
};

enum class ServeEnd : std::uint8_t {
  kDrained,       // a signal came, nothing was lost
  kAborted,       // a second signal came, or the time to drain was over: answers were cut
  kAddressInUse,  // `status` says which
  kFailed,        // `status`: the model, the address or the certificate
};

struct ServeOutcome {
  ServeEnd end = ServeEnd::kDrained;
  int signal = 0;
  Status status;
};

// Blocks. Logs to `log_file`. Catches SIGINT and SIGTERM from its first to its last act: the first
// one drains (new requests get 503, running ones finish), the second ends the process at once, with
// 128 + its number.
ServeOutcome serve(const ServeOptions& options, std::FILE* log_file);

}  // namespace nibble::server
