// Work that may take long (reading a large body, its tokens) is done beside the threads that serve
// HTTP, so that nobody else waits for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "server/http.h"

namespace nibble::server {

// One thread that runs what it is given, in order.
class Aside {
 public:
  Aside();
  ~Aside();  // what has not begun is dropped
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  void run(std::function<void()> work);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable arrival_;
  std::deque<std::function<void()>> waiting_;
  bool is_ending_ = false;
  std::thread thread_;
};

// An exchange for a handler that runs beside the exchange's own executor: keeps what the handler
// does to it, and what others post to it meanwhile, until `open`, which does it all in that order.
// From then on calls pass. A handler sees no difference but that its client may have left before.
class HeldExchange final : public Exchange {
 public:
  explicit HeldExchange(ExchangePtr inner) : inner_(std::move(inner)) {}

  void post(std::function<void()> work) override;
  void reply(HttpReply reply) override;
  void begin_stream(HttpReply head) override;
  void send(std::string_view chunk) override;
  void end_stream() override;
  void when_gone(std::function<void()> action) override;
  void when_late(std::chrono::milliseconds after, std::function<void()> action) override;

  // On the executor, once.
  void open();

 private:
  using Calls = std::vector<std::function<void()>>;

  // Keeps a call. False: it may be made.
  template <typename Call>
  bool keep(Call& call);
  Calls take();

  ExchangePtr inner_;
  std::mutex mutex_;
  Calls held_;
  bool is_open_ = false;
};

// Runs `handle` through `run`, then opens `exchange` on the executor of `inner`, which it holds.
// What `handle` throws is thrown there.
void handle_aside(const std::function<void(std::function<void()>)>& run, ExchangePtr inner,
                  std::shared_ptr<HeldExchange> exchange, std::function<void()> handle);

}  // namespace nibble::server
