// The way back of one request over a connection: the bytes of its reply or of its stream.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/asio.h"
#include "server/http.h"

namespace nibble::server {

// What an exchange uses of its connection. Everything on the connection's strand.
class ReplyChannel {
 public:
  virtual ~ReplyChannel() = default;
  virtual const asio::any_io_executor& executor() const = 0;
  virtual void append(std::string_view bytes) = 0;
  virtual void wake() = 0;  // the exchange is over
  virtual void cut() = 0;   // what is written so far cannot be completed
  virtual bool keeps_alive() const = 0;
  virtual void refuse_more() = 0;  // no further request after this one
  virtual HttpReply internal_error() const = 0;
};

class ConnectionExchange final : public Exchange,
                                 public std::enable_shared_from_this<ConnectionExchange> {
 public:
  using Clock = std::chrono::steady_clock;

  ConnectionExchange(std::shared_ptr<ReplyChannel> channel, bool is_head, bool is_http11)
      : channel_(std::move(channel)), is_head_(is_head), is_chunked_(is_http11) {}

  void post(std::function<void()> work) override;
  void reply(HttpReply reply) override;
  void begin_stream(HttpReply head) override;
  void send(std::string_view chunk) override;
  void end_stream() override;
  void when_gone(std::function<void()> action) override;
  void when_late(std::chrono::milliseconds after, std::function<void()> action) override;

  // The client has left: whatever comes now is dropped.
  void leave();
  void check_time();
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
  void forget();

  std::shared_ptr<ReplyChannel> channel_;
  std::function<void()> gone_;
  std::function<void()> late_;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool is_head_ = false;
  bool is_chunked_ = false;
  bool is_streaming_ = false;
  bool is_over_ = false;
  bool has_left_ = false;  // the client, before the end
};

}  // namespace nibble::server
