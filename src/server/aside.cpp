#include "server/aside.h"

#include <exception>
#include <string>

namespace nibble::server {
Aside::Aside() : thread_([this] { loop(); }) {}

Aside::~Aside() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  arrival_.notify_one();
  thread_.join();
}

void Aside::run(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
  }
  arrival_.notify_one();
}

void Aside::loop() {
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      arrival_.wait(lock, [this] { return is_ending_ || !waiting_.empty(); });
      if (is_ending_) {
        return;
      }
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

template <typename Call>
bool HeldExchange::keep(Call& call) {
  const std::lock_guard lock(mutex_);
  if (!is_open_) {
    held_.emplace_back(std::move(call));
  }
  return !is_open_;
}

void HeldExchange::post(std::function<void()> work) {
  if (!keep(work)) {
    inner_->post(std::move(work));
  }
}

void HeldExchange::reply(HttpReply reply) {
  auto call = [inner = inner_, headers = added_headers(), reply = std::move(reply)] {
    for (const Header& header : headers) {
      inner->add_header(header.name, header.value);
    }
    inner->reply(reply);
  };
  if (!keep(call)) {
    call();
  }
}

void HeldExchange::begin_stream(HttpReply head) {
  auto call = [inner = inner_, headers = added_headers(), head = std::move(head)] {
    for (const Header& header : headers) {
      inner->add_header(header.name, header.value);
    }
    inner->begin_stream(head);
  };
  if (!keep(call)) {
    call();
  }
}

void HeldExchange::send(std::string_view chunk) {
  auto call = [inner = inner_, kept = std::string(chunk)] { inner->send(kept); };
  if (!keep(call)) {
    call();
  }
}

void HeldExchange::end_stream() {
  auto call = [inner = inner_] { inner->end_stream(); };
  if (!keep(call)) {
    call();
  }
}

void HeldExchange::when_gone(std::function<void()> action) {
  auto call = [inner = inner_, action = std::move(action)] { inner->when_gone(action); };
  if (!keep(call)) {
    call();
  }
}

void HeldExchange::when_late(std::chrono::milliseconds after, std::function<void()> action) {
  auto call = [inner = inner_, after, action = std::move(action)] {
    inner->when_late(after, action);
  };
  if (!keep(call)) {
    call();
  }
}

// What is called meanwhile is kept too, for its turn.
void HeldExchange::open() {
  for (Calls calls = take(); !calls.empty(); calls = take()) {
    for (const auto& one : calls) {
      one();
    }
  }
}

// Nothing is held any more: from now on calls pass.
HeldExchange::Calls HeldExchange::take() {
  const std::lock_guard lock(mutex_);
  is_open_ = held_.empty();
  return std::exchange(held_, {});
}

void handle_aside(const std::function<void(std::function<void()>)>& run, ExchangePtr inner,
                  std::shared_ptr<HeldExchange> exchange, std::function<void()> handle) {
  run([inner = std::move(inner), exchange = std::move(exchange), handle = std::move(handle)] {
    std::exception_ptr mistake;
    try {
      handle();
    } catch (...) {
      mistake = std::current_exception();
    }
    inner->post([exchange, mistake] {
      exchange->open();
      if (mistake != nullptr) {
        std::rethrow_exception(mistake);  // the transport knows what to do
      }
    });
  });
}

}  // namespace nibble::server
