#include "server/serve.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "server/api_error.h"
#include "server/aside.h"
#include "server/router.h"
#include "server/status_line.h"

namespace nibble::server {
namespace {

using Clock = std::chrono::steady_clock;

// How long the last bytes of answers may take to leave, once all are made.
constexpr std::chrono::milliseconds kFlushTime{2000};
constexpr std::chrono::milliseconds kPoll{10};

// Thousands of connections need as many descriptors; the usual soft limit is 1,024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
  }
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Server {
 public:
  Server(const ServeOptions& options, std::FILE* log_file)
      : options_(options),
        log_(log_file, options.is_json_log, options.log_level),
        context_(options.api, log_) {
    context_.started_at = unix_time();
    context_.run_aside = [this](std::function<void()> work) { aside_.run(std::move(work)); };
  }

  ServeOutcome run();

 private:
  ListenerHooks hooks();
  void on_signal(int signal);
  void on_tick();
  Status load();
  ServeOutcome drain();
  template <typename Condition>
  bool wait_until(Clock::time_point deadline, Condition condition) const;

  const ServeOptions& options_;
  Log log_;
  ApiContext context_;
  Loaded loaded_;
  ServiceHost* host_ = nullptr;
  std::unique_ptr<Listener> listener_;
  Aside aside_;  // ends first: its work refers to the rest

  std::mutex mutex_;
  std::condition_variable signalled_;
  int signal_ = 0;
  std::atomic<bool> is_closing_{false};
  std::atomic<bool> is_loading_{true};

  StatusLine status_line_;
  Clock::time_point last_status_ = Clock::now();
};

ListenerHooks Server::hooks() {
  ListenerHooks hooks;
  hooks.handler = make_api(context_);
  hooks.malformed = [](int status, const std::string& message) {
    return error_reply({status, message, "invalid_request_error", "", ""});
  };
  hooks.on_signal = [this](int signal) { on_signal(signal); };
  hooks.on_tick = [this] { on_tick(); };
  hooks.is_closing = [this] { return is_closing_.load(); };
  return hooks;
}

void Server::on_signal(int signal) {
  {
    const std::lock_guard lock(mutex_);
    if (is_loading_) {
      log_.write(LogLevel::kInfo, "stopped while loading");
      _exit(0);  // nothing was promised to anybody, and loading cannot be interrupted
    }
    if (signal_ != 0) {
      log_.write(LogLevel::kWarning, "aborted by a second signal");
      _exit(128 + signal);
    }
    signal_ = signal;
  }
  signalled_.notify_all();
}

void Server::on_tick() {
  if (context_.loaded == nullptr || options_.status_interval.count() == 0 ||
      Clock::now() - last_status_ < options_.status_interval) {
    return;
  }
  const auto now = Clock::now();
  if (const auto line = status_line_.next(host_->stats(), now - last_status_)) {
    log_.write(LogLevel::kInfo, *line);
  }
  last_status_ = now;
}

Status Server::load() {
  const Clock::time_point begin = Clock::now();
  Result<Service> service = Service::start(options_.service);
  if (!service) {
    return service.error();
  }
  auto host = std::make_unique<ServiceHost>(std::move(*service));
  host_ = host.get();
  const EngineInfo& info = host_->info();
  loaded_ = {std::move(host), std::make_unique<Metrics>(context_.model_name(), info)};
  const ServiceStats stats = host_->stats();
  {
    const std::lock_guard lock(mutex_);
    is_loading_ = false;
  }
  context_.loaded = &loaded_;
  const std::int64_t cache_tokens =
      std::int64_t{stats.full_pages.total} * options_.service.engine.page_size;
  log_.write(
      LogLevel::kInfo, "ready",
      {{"url", listener_->url()},
       {"model", info.model},
       {"device", info.device},
       {"activation", info.activation},
       {"kv_cache", info.kv_cache},
       {"load_s", seconds_since(begin)},
       {"weights_mb", static_cast<double>(info.mapped_bytes + info.owned_weight_bytes) / 1e6},
       {"kv_mb", static_cast<double>(info.kv_bytes) / 1e6},
       {"kv_tokens", cache_tokens},
       {"max_model_len", std::int64_t{info.max_model_len}},
       {"concurrency_at_full_context",
        static_cast<double>(cache_tokens) / static_cast<double>(info.max_model_len)},
       {"threads", std::int64_t{info.num_threads}},
       {"deterministic", std::int64_t{options_.service.engine.is_deterministic}}});
  return {};
}

template <typename Condition>
bool Server::wait_until(Clock::time_point deadline, Condition condition) const {
  while (!condition()) {
    if (Clock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

ServeOutcome Server::drain() {
  const std::int64_t open = context_.num_open;
  log_.write(LogLevel::kInfo, "draining", {{"requests", open}});
  context_.is_draining = true;
  const Clock::time_point begin = Clock::now();
  // Made, and taken by the clients: a slow reader has the same time as a slow model.
  const bool is_clean = wait_until(begin + options_.shutdown_timeout, [this] {
    return context_.num_open == 0 && listener_->num_answering() == 0;
  });
  if (!is_clean) {
    host_->service().stop();  // each of them ends with an error
    wait_until(Clock::now() + kFlushTime, [this] { return context_.num_open == 0; });
  }
  is_closing_ = true;
  wait_until(Clock::now() + kFlushTime, [this] { return listener_->num_connections() == 0; });
  log_.write(LogLevel::kInfo, is_clean ? "stopped" : "stopped; requests were cut",
             {{"drain_s", seconds_since(begin)}});
  return {.end = is_clean ? ServeEnd::kDrained : ServeEnd::kAborted, .signal = signal_};
}

ServeOutcome Server::run() {
  raise_descriptor_limit();
  ListenFailure failure;
  listener_ = Listener::open(options_.listener, hooks(), failure);
  if (listener_ == nullptr) {
    return {.end = failure.is_address_in_use ? ServeEnd::kAddressInUse : ServeEnd::kFailed,
            .status = failure.status};
  }
  log_.write(LogLevel::kInfo, "listening", {{"url", listener_->url()}});
  ServeOutcome outcome;
  outcome.status = load();
  if (!outcome.status.ok()) {
    outcome.end = ServeEnd::kFailed;
  } else {
    {
      std::unique_lock lock(mutex_);
      signalled_.wait(lock, [this] { return signal_ != 0; });
    }
    outcome = drain();
  }
  listener_->close();
  if (host_ != nullptr) {
    host_->service().stop();
  }
  return outcome;
}

}  // namespace

ServeOutcome serve(const ServeOptions& options, std::FILE* log_file) {
  return Server(options, log_file).run();
}

}  // namespace nibble::server
