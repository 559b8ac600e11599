#include "server/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <exception>
#include <optional>

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

// Wakes the one coroutine that waits. Everything on one strand.
class Signal {
 public:
  explicit Signal(const asio::any_io_executor& executor) : timer_(executor) {}

  void raise() {
    is_raised_ = true;
    timer_.cancel();
  }
  // False when the deadline came first.
  asio::awaitable<bool> wait_until(Clock::time_point deadline) {
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

std::string_view reason(int status) {
  const auto known = http::obsolete_reason(static_cast<http::status>(status));
  return {known.data(), known.size()};
}

std::string lower(boost::beast::string_view text) {
  std::string out(text.data(), text.size());
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

int status_of(const ErrorCode& fault) {
  if (fault == http::error::header_limit) {
    return 431;
  }
  if (fault == http::error::body_limit) {
    return 413;
  }
  return fault == http::error::bad_version ? 505 : 400;
}

HttpRequest plain(http::request<http::string_body>&& from) {
  HttpRequest out;
  out.method.assign(from.method_string().data(), from.method_string().size());
  const std::string target(from.target().data(), from.target().size());
  const std::size_t question = target.find('?');
  out.path = target.substr(0, question);
  out.query = question == std::string::npos ? "" : target.substr(question + 1);
  for (const auto& field : from) {
    out.headers.push_back(
        {lower(field.name_string()), std::string(field.value().data(), field.value().size())});
  }
  out.body = std::move(from.body());
  return out;
}

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

class Connection;

class ConnectionExchange final : public Exchange,
                                 public std::enable_shared_from_this<ConnectionExchange> {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, bool is_head, bool is_http11)
      : connection_(std::move(connection)), is_head_(is_head), is_chunked_(is_http11) {}

  void post(std::function<void()> work) override;
  void reply(HttpReply reply) override;
  void begin_stream(HttpReply head) override;
  void send(std::string_view chunk) override;
  void end_stream() override;
  void when_gone(std::function<void()> action) override {
    if (has_left_) {
      action();
    } else if (!is_over_) {
      gone_ = std::move(action);
    }
  }
  void when_late(std::chrono::milliseconds after, std::function<void()> action) override {
    if (after.count() > 0) {
      deadline_ = Clock::now() + after;
      late_ = std::move(action);
    }
  }

  // The client has left: whatever comes now is dropped.
  void leave() {
    if (!std::exchange(is_over_, true)) {
      has_left_ = true;
      if (gone_) {
        std::exchange(gone_, nullptr)();
      }
    }
    forget();
  }
  void check_time() {
    if (!is_over_ && late_ && Clock::now() >= deadline_) {
      deadline_ = Clock::time_point::max();
      std::exchange(late_, nullptr)();
    }
  }
  // Runs work of a handler: a mistake in one may end its request, never the server.
  template <typename Work>
  void guard(const Work& work) {
    try {
      work();
    } catch (const std::exception&) {
      fail();
    }
  }
  bool is_over() const { return is_over_; }
  // A stream whose end only the end of the connection can tell: clients of HTTP/1.0.
  bool must_close() const { return is_streaming_ && !is_chunked_; }
  Clock::time_point deadline() const { return late_ ? deadline_ : Clock::time_point::max(); }

 private:
  std::string head(const HttpReply& reply, std::string_view framing) const;
  void write(std::string_view bytes);
  void finish();
  void fail();
  void forget() {
    gone_ = nullptr;
    late_ = nullptr;
  }

  std::shared_ptr<Connection> connection_;
  std::function<void()> gone_;
  std::function<void()> late_;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool is_head_ = false;
  bool is_chunked_ = false;
  bool is_streaming_ = false;
  bool is_over_ = false;
  bool has_left_ = false;  // the client, before the end
};

class Connection final : public std::enable_shared_from_this<Connection> {
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
  ~Connection() { when_over_(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  static asio::awaitable<void> run(std::shared_ptr<Connection> self);

  const asio::any_io_executor& executor() const { return executor_; }
  bool keeps_alive() const { return keeps_alive_; }
  void refuse_more() { keeps_alive_ = false; }
  void append(std::string_view bytes);
  void wake() { wake_.raise(); }
  HttpReply internal_error() const { return context_.malformed(500, "the server made a mistake"); }
  void cut();

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
  Signal wake_;   // for the one that serves: bytes came, the client left, there is output
  Signal space_;  // for the one that reads: there is room
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

void ConnectionExchange::post(std::function<void()> work) {
  // The exchange, and with it the connection, lives until the work is done.
  asio::post(connection_->executor(),
             [self = shared_from_this(), work = std::move(work)] { self->guard(work); });
}

std::string ConnectionExchange::head(const HttpReply& reply, std::string_view framing) const {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", reply.status, reason(reply.status));
  const auto add = [&out](std::string_view name, std::string_view value) {
    out.append(name).append(": ").append(value).append("\r\n");
  };
  if (!reply.content_type.empty()) {
    add("content-type", reply.content_type);
  }
  for (const auto* headers : {&added_headers(), &reply.headers}) {
    for (const Header& header : *headers) {
      add(header.name, header.value);
    }
  }
  if (!connection_->keeps_alive()) {
    add("connection", "close");
  }
  return out.append(framing).append("\r\n");
}

void ConnectionExchange::write(std::string_view bytes) { connection_->append(bytes); }

void ConnectionExchange::reply(HttpReply reply) {
  if (is_over_) {
    return;
  }
  const bool has_body = reply.status != 204 && reply.status != 304;
  std::string bytes =
      head(reply, has_body ? fmt::format("content-length: {}\r\n", reply.body.size()) : "");
  if (has_body && !is_head_) {
    bytes += reply.body;
  }
  write(bytes);  // at once: only streams can fall behind
  finish();
}

void ConnectionExchange::begin_stream(HttpReply reply) {
  if (is_over_) {
    return;
  }
  is_streaming_ = true;
  if (must_close()) {
    connection_->refuse_more();
  }
  write(head(reply, is_chunked_ ? "transfer-encoding: chunked\r\n" : ""));
}

void ConnectionExchange::send(std::string_view chunk) {
  if (is_over_ || chunk.empty() || is_head_) {
    return;
  }
  if (is_chunked_) {
    write(fmt::format("{:x}\r\n{}\r\n", chunk.size(), chunk));
  } else {
    write(chunk);
  }
}

void ConnectionExchange::end_stream() {
  if (is_over_) {
    return;
  }
  if (is_chunked_ && !is_head_) {
    write("0\r\n\r\n");
  }
  finish();
}

// In a stream nothing can be said any more but by its missing end.
void ConnectionExchange::fail() {
  if (is_streaming_) {
    connection_->cut();
  } else {
    reply(connection_->internal_error());
  }
}

void ConnectionExchange::finish() {
  is_over_ = true;
  forget();
  connection_->wake();
}

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
  co_await wire_->shutdown_send();
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
