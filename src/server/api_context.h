// What every handler has at hand.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/log.h"
#include "server/metrics.h"
#include "server/model_host.h"
#include "server/response_store.h"

namespace nibble::server {

struct ApiOptions {
  std::vector<std::string> model_names;      // at least one; the first is the one that answers tell
  std::vector<std::string> api_keys;         // none: open to everyone
  std::vector<std::string> allowed_origins;  // "*": every; none: no cross-origin use
  std::chrono::milliseconds request_timeout{0};  // 0: none
  bool logs_requests = true;
  std::int64_t body_bytes = 32 << 20;            // of a compressed body, once decompressed
  std::int64_t gzip_from_bytes = 2 << 10;        // smaller replies are not compressed; 0: none is
  std::int64_t response_store_bytes = 64 << 20;  // of /v1/responses; 0: none is kept
};

// A model that is ready, with what belongs to it.
struct Loaded {
  std::unique_ptr<ModelHost> host;
  std::unique_ptr<Metrics> metrics;
};

struct ApiContext {
  ApiContext(ApiOptions wanted, Log& where)
      : options(std::move(wanted)), log(where), responses(options.response_store_bytes) {}

  ApiOptions options;
  Log& log;
  ResponseStore responses;
  std::atomic<Loaded*> loaded{nullptr};  // null while loading
  // Takes requests that may keep a thread busy to another one; empty: there is none.
  std::function<void(std::function<void()>)> run_aside;
  std::atomic<bool> is_draining{false};
  std::atomic<std::int64_t> num_open{0};  // exchanges begun and not ended
  std::int64_t started_at = 0;            // seconds since 1970

  const std::string& model_name() const { return options.model_names.front(); }
};

// Seconds since 1970.
std::int64_t unix_time();
// "chatcmpl-" and 24 hexadecimal digits that no other id has.
std::string new_id(const char* prefix);

}  // namespace nibble::server
