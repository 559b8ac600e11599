// Lets one coroutine wait for what others on its strand do.
#pragma once

#include <chrono>
#include <utility>

#include "server/asio.h"

namespace nibble::server {

// Wakes the one coroutine that waits. Everything on one strand.
class WakeSignal {
 public:
  explicit WakeSignal(const asio::any_io_executor& executor) : timer_(executor) {}

  void raise() {
    is_raised_ = true;
    timer_.cancel();
  }
  // False when the deadline came first.
  asio::awaitable<bool> wait_until(std::chrono::steady_clock::time_point deadline) {
    if (!is_raised_) {
      timer_.expires_at(deadline);
      ErrorCode ignored;
      co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    co_return std::exchange(is_raised_, false);
  }

 private:
  asio::steady_timer timer_;
  bool is_raised_ = false;
};

}  // namespace nibble::server
