#include "server/connection.h"

#include <algorithm>
#include <array>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <utility>

#include "server/beast_request.h"
#include "server/connection_exchange.h"
#include "server/wake_signal.h"

namespace nibble::server {
namespace {

namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadBytes = 16 << 10;
// What a client may send ahead of its turn; then its requests wait in its own buffers.
constexpr std::size_t kAheadBytes = 128 << 10;
// How often a connection without a request looks whether the server is about to end.
constexpr std::chrono::milliseconds kIdleCheck{500};
// How long the rest of a refused upload is swallowed, so that the client gets to read the refusal.
constexpr std::chrono::seconds kLinger{2};

// One more of something, for as long as this lives.
class Counted {
 public:
  explicit Counted(std::atomic<std::int32_t>* count) : count_(count) {
    if (count_ != nullptr) {
      ++*count_;
    }
  }
  ~Counted() {
    if (count_ != nullptr) {
      --*count_;
    }
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::int32_t>* count_;
};

// A connection and its exchange hold each other: no longer than this lives, which ends with the
// coroutine, even if that is never resumed.
class Bond {
 public:
  Bond(std::shared_ptr<ConnectionExchange>& current, std::shared_ptr<ConnectionExchange> exchange)
      : current_(current) {
    current_ = std::move(exchange);
  }
  ~Bond() { current_ = nullptr; }
  Bond(const Bond&) = delete;
  Bond& operator=(const Bond&) = delete;

 private:
  std::shared_ptr<ConnectionExchange>& current_;
};

class Connection final : public ReplyChannel, public std::enable_shared_from_this<Connection> {
 public:
  Connection(const asio::any_io_executor& executor, std::unique_ptr<Wire> wire,
             const ConnectionContext& context, std::function<void()> when_over)
      : executor_(executor),
        wire_(std::move(wire)),
        context_(context),
        limits_(context.limits),
        when_over_(std::move(when_over)),
        wake_(executor),
        space_(executor),
        watchdog_(executor) {}
  ~Connection() override { when_over_(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  static asio::awaitable<void> run(std::shared_ptr<Connection> self);

  const asio::any_io_executor& executor() const override { return executor_; }
  void append(std::string_view bytes) override;
  void wake() override { wake_.raise(); }
  void cut() override;
  bool keeps_alive() const override { return keeps_alive_; }
  void refuse_more() override { keeps_alive_ = false; }
  HttpReply internal_error() const override {
    return context_.malformed(500, "the server made a mistake");
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  static asio::awaitable<void> pump(std::shared_ptr<Connection> self);
  asio::awaitable<bool> shake_hands();
  asio::awaitable<std::optional<HttpRequest>> read_request();
  asio::awaitable<bool> on_head(const Parser& parser);
  asio::awaitable<void> answer(HttpRequest request);
  asio::awaitable<void> refuse(int status, const std::string& message);
  asio::awaitable<bool> flush();
  asio::awaitable<void> linger();
  void arm(std::chrono::milliseconds time);
  void close();

  asio::any_io_executor executor_;
  std::unique_ptr<Wire> wire_;
  const ConnectionContext& context_;
  const ConnectionLimits& limits_;
  std::function<void()> when_over_;
  WakeSignal wake_;   // for the one that serves: bytes came, the client left, there is output
  WakeSignal space_;  // for the one that reads: there is room
  asio::steady_timer watchdog_;
  boost::beast::flat_buffer in_;
  std::string out_;
  std::shared_ptr<ConnectionExchange> current_;
  bool is_http11_ = true;
  bool is_head_ = false;
  bool keeps_alive_ = true;
  bool has_ended_ = false;  // nothing more will be read
  bool is_closed_ = false;
  bool is_flushing_ = false;
};

asio::awaitable<void> Connection::run(std::shared_ptr<Connection> self) {
  if (co_await self->shake_hands()) {
    asio::co_spawn(self->executor_, pump(self), asio::detached);
    while (self->keeps_alive_) {
      std::optional<HttpRequest> request = co_await self->read_request();
      if (!request.has_value()) {
        break;
      }
      co_await self->answer(*std::move(request));
    }
    co_await self->linger();
  }
  self->close();
}

asio::awaitable<bool> Connection::shake_hands() {
  arm(limits_.read);
  ErrorCode failed;
  co_await wire_->handshake(failed);
  watchdog_.cancel();
  co_return !failed;
}

// Reads all the time; stops when too much lies unread.
asio::awaitable<void> Connection::pump(std::shared_ptr<Connection> self) {
  std::array<char, kReadBytes> bytes{};
  while (!self->has_ended_) {
    ErrorCode failed;
    const std::size_t count =
        co_await self->wire_->read_some(asio::buffer(bytes.data(), bytes.size()), failed);
    if (failed || count == 0) {
      break;
    }
    const auto room = self->in_.prepare(count);
    asio::buffer_copy(room, asio::buffer(bytes.data(), count));
    self->in_.commit(count);
    self->wake_.raise();
    while (self->in_.size() >= kAheadBytes && !self->is_closed_) {
      co_await self->space_.wait_until(Clock::time_point::max());
    }
  }
  self->has_ended_ = true;
  if (self->current_ != nullptr) {
    self->current_->leave();
  }
  self->wake_.raise();
}

// Nothing when the client left, or was refused and told so.
asio::awaitable<std::optional<HttpRequest>> Connection::read_request() {
  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(limits_.header_bytes));
  parser.body_limit(static_cast<std::uint64_t>(limits_.body_bytes));
  bool has_begun = false;
  Clock::time_point deadline = Clock::now() + limits_.idle;
  while (!parser.is_done()) {
    ErrorCode fault;
    if (in_.size() > 0) {
      if (!std::exchange(has_begun, true)) {
        deadline = Clock::now() + limits_.read;
      }
      const bool had_head = parser.is_header_done();
      const std::size_t used = parser.put(in_.cdata(), fault);
      in_.consume(used);
      space_.raise();
      if (fault && fault != http::error::need_more) {
        co_await refuse(status_of(fault), fault.message());
        co_return std::nullopt;
      }
      if (parser.is_header_done() && !had_head && !co_await on_head(parser)) {
        co_return std::nullopt;
      }
      if (used > 0) {
        deadline = parser.is_header_done() ? Clock::now() + limits_.read : deadline;
        continue;
      }
    }
    if (has_ended_) {
      co_return std::nullopt;
    }
    const Clock::time_point now = Clock::now();
    if (co_await wake_.wait_until(has_begun ? deadline : std::min(deadline, now + kIdleCheck))) {
      continue;
    }
    if (has_begun) {
      co_await refuse(408, "the request did not arrive in time");
      co_return std::nullopt;
    }
    if (Clock::now() >= deadline || context_.is_closing()) {
      co_return std::nullopt;
    }
  }
  is_http11_ = parser.get().version() >= 11;
  is_head_ = parser.get().method() == http::verb::head;
  keeps_alive_ = parser.get().keep_alive() && !context_.is_closing();
  co_return plain(parser.release());
}

// Answers Expect: 100-continue, before a byte of the body comes.
asio::awaitable<bool> Connection::on_head(const Parser& parser) {
  const auto& head = parser.get();
  const auto expect = head[http::field::expect];
  if (parser.is_done() || expect.empty()) {
    co_return true;
  }
  if (lower(expect) != "100-continue") {
    co_await refuse(417, "expect: want 100-continue");
    co_return false;
  }
  append("HTTP/1.1 100 Continue\r\n\r\n");
  co_return co_await flush();
}

asio::awaitable<void> Connection::answer(HttpRequest request) {
  const Counted answering(context_.num_answering);
  const auto exchange =
      std::make_shared<ConnectionExchange>(shared_from_this(), is_head_, is_http11_);
  const Bond bond(current_, exchange);
  exchange->guard([&] { context_.handler(request, exchange); });
  request = {};
  if (has_ended_ && !exchange->is_over()) {
    exchange->leave();
  }
  while (true) {
    if (!out_.empty()) {
      if (!co_await flush()) {
        break;
      }
    } else if (exchange->is_over()) {
      break;
    } else if (!co_await wake_.wait_until(exchange->deadline())) {
      exchange->check_time();
    }
  }
  exchange->leave();
  keeps_alive_ = keeps_alive_ && !has_ended_ && !is_closed_;
}

asio::awaitable<void> Connection::refuse(int status, const std::string& message) {
  keeps_alive_ = false;
  const HttpReply reply = context_.malformed(status, message);
  const auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), false, true);
  exchange->reply(reply);
  co_await flush();
}

void Connection::append(std::string_view bytes) {
  if (is_closed_) {
    return;
  }
  // For a client that keeps up this is all: no wake-up, no timer.
  if (out_.empty() && !is_flushing_) {
    bytes.remove_prefix(wire_->try_write(bytes));
    if (bytes.empty()) {
      return;
    }
  }
  out_.append(bytes);
  // One piece alone may be larger than what a stream may leave lying: a whole reply is there
  // anyway.
  const bool is_behind = current_ != nullptr && current_->is_over() == false &&
                         static_cast<std::int64_t>(out_.size()) > limits_.stream_bytes &&
                         bytes.size() < out_.size();
  if (is_behind) {
    cut();
  }
  wake_.raise();
}

void Connection::cut() {
  out_.clear();
  close();
  if (current_ != nullptr) {
    current_->leave();
  }
}

// False when the client does not take it any more.
asio::awaitable<bool> Connection::flush() {
  const std::string bytes = std::exchange(out_, {});
  std::size_t done = 0;
  is_flushing_ = true;
  while (done < bytes.size() && !is_closed_) {
    arm(limits_.write);
    ErrorCode failed;
    done +=
        co_await wire_->write_some(asio::buffer(bytes.data() + done, bytes.size() - done), failed);
    if (failed) {
      close();
    }
  }
  is_flushing_ = false;
  watchdog_.cancel();
  co_return !is_closed_;
}

// After the last reply: the client must be able to read it even when it still sends.
asio::awaitable<void> Connection::linger() {
  if (has_ended_ || is_closed_) {
    co_return;
  }
  arm(limits_.write);
  co_await wire_->shutdown_send();
  watchdog_.cancel();
  const Clock::time_point deadline = Clock::now() + kLinger;
  while (!has_ended_) {
    in_.consume(in_.size());
    space_.raise();
    if (!co_await wake_.wait_until(deadline)) {
      break;
    }
  }
}

void Connection::arm(std::chrono::milliseconds time) {
  watchdog_.expires_after(time);
  watchdog_.async_wait([weak = weak_from_this()](const ErrorCode& cancelled) {
    const auto self = weak.lock();
    if (!cancelled && self != nullptr) {
      self->close();
    }
  });
}

void Connection::close() {
  if (!std::exchange(is_closed_, true)) {
    wire_->close();
    space_.raise();
    wake_.raise();
  }
}

}  // namespace

void start_connection(const asio::any_io_executor& executor, std::unique_ptr<Wire> wire,
                      const ConnectionContext& context, std::function<void()> when_over) {
  auto connection =
      std::make_shared<Connection>(executor, std::move(wire), context, std::move(when_over));
  asio::co_spawn(executor, Connection::run(connection), asio::detached);
}

}  // namespace nibble::server
