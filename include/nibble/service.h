// Many requests at once: one model, one engine thread, continuous batching.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nibble/engine.h"
#include "nibble/request.h"
#include "nibble/status.h"

namespace nibble {

struct ServiceOptions {
  EngineOptions engine;            ///< max_num_seqs: requests that are computed together
  std::int32_t max_queued = 1024;  ///< requests beyond those; more are refused
};

/// Never used twice by one service.
using RequestId = std::uint64_t;

/// Where the answer of one request goes. Called in the engine thread, one call at a time, after
/// `submit` began and perhaps before it returned: every stream waits while a call runs, so it must
/// only hand over. May call `submit` and `cancel`, no other function of the service.
struct RequestSink {
  /// May be empty. Returning false cancels.
  std::function<bool(const Delta&)> on_delta;
  /// May be empty. After each generated token: how many there are now, and the time since the one
  /// before (of the first: since `submit`).
  std::function<void(std::int32_t num_generated, double gap_ms)> on_token;
  /// Exactly once, last. What the request held is free by then. A cancelled one gives the response
  /// so far, with FinishReason::kCancelled.
  std::function<void(Result<Response>)> on_end;
};

enum class ServiceState : std::uint8_t {
  kServing,
  kDraining,  ///< takes nothing new, finishes what it has
  kFailed,    ///< the device failed: everything ended with that status, all else is refused
  kStopped,
};

/// A snapshot; counters count from the start.
struct ServiceStats {
  struct Pages {
    std::int32_t used = 0;
    std::int32_t total = 0;
    std::int32_t prefixes = 0;  ///< used by nobody, kept in case a prompt begins alike
  };
  ServiceState state = ServiceState::kServing;
  Status failure;            ///< kFailed
  std::int32_t running = 0;  ///< hold pages, are being computed
  std::int32_t waiting = 0;  ///< wait for that
  Pages full_pages;          ///< of layers that see everything
  Pages window_pages;        ///< of layers with a window
  std::int64_t preemptions = 0;
  std::int64_t prefix_queried_tokens = 0;  ///< of prompts, when their computing began
  std::int64_t prefix_hit_tokens = 0;      ///< of those, found in the cache
  std::int64_t prompt_tokens = 0;          ///< of requests that have their first token
  std::int64_t generation_tokens = 0;
  std::int64_t ended = 0;  ///< requests, however they ended
};

/// Every function may be called by any thread.
class Service {
 public:
  /// As Engine::load.
  static Result<Service> start(const ServiceOptions& options);

  Service(Service&&) noexcept;
  Service& operator=(Service&&) noexcept;
  ~Service();  ///< as `stop`

  const EngineInfo& info() const;

  /// Checks and queues. kExhausted: the queue is full; kCancelled: draining or stopped; the failure
  /// when the service has failed; otherwise as Engine::generate. On an error the sink is not used.
  Result<RequestId> submit(const Request& request, RequestSink sink);
  /// One answer for each sink (at least one) to one prompt, which is read once: as `submit` of what
  /// `choices_of` makes, but that all are accepted or none, and that `prompt_logprobs` come with
  /// the first alone.
  Result<std::vector<RequestId>> submit(const Request& request, std::vector<RequestSink> sinks);
  /// Ends the request and frees what it holds, after the step that is being computed. One that has
  /// ended is ignored.
  void cancel(RequestId id);

  ServiceStats stats() const;

  /// Refuses new requests from now on.
  void drain();
  /// Waits until no request is left: false when some are at the end of `timeout`.
  bool wait_until_idle(std::chrono::milliseconds timeout) const;
  /// Cancels what is left and ends the engine thread.
  void stop();

  /// As in Engine.
  Result<std::vector<std::int32_t>> encode(const std::string& text, bool with_special) const;
  Result<std::string> decode(const std::vector<std::int32_t>& ids) const;
  Result<std::vector<std::int32_t>> prompt_ids(const Request& request) const;
  /// Bytes of one token, a part of a character perhaps; the spelling of a control token. Empty
  /// without a tokenizer.
  std::string token_bytes(std::int32_t id) const;

 private:
  struct Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble
