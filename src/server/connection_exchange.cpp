#include "server/connection_exchange.h"

#include <fmt/format.h>

#include <boost/beast/http/status.hpp>

namespace nibble::server {
namespace {

namespace http = boost::beast::http;

std::string_view reason(int status) {
  const auto known = http::obsolete_reason(static_cast<http::status>(status));
  return {known.data(), known.size()};
}

// A mistake in these words has nobody left to be told of.
void run_last(const std::function<void()>& action) {
  try {
    if (action) {
      action();
    }
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace

void ConnectionExchange::post(std::function<void()> work) {
  // The exchange, and with it the connection, lives until the work is done.
  asio::post(channel_->executor(),
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
  if (!channel_->keeps_alive()) {
    add("connection", "close");
  }
  return out.append(framing).append("\r\n");
}

// An exchange that is over holds nothing: an action may hold the exchange itself.
void ConnectionExchange::when_gone(std::function<void()> action) {
  if (has_left_) {
    run_last(action);
  } else if (!is_over_) {
    gone_ = std::move(action);
  }
}

void ConnectionExchange::when_late(std::chrono::milliseconds after, std::function<void()> action) {
  if (!is_over_ && after.count() > 0) {
    deadline_ = Clock::now() + after;
    late_ = std::move(action);
  }
}

void ConnectionExchange::leave() {
  const auto gone = std::exchange(gone_, nullptr);
  if (!std::exchange(is_over_, true)) {
    has_left_ = true;
    run_last(gone);
  }
  forget();
}

void ConnectionExchange::check_time() {
  if (!is_over_ && late_ && Clock::now() >= deadline_) {
    guard(std::exchange(late_, nullptr));
  }
}

void ConnectionExchange::forget() {
  gone_ = nullptr;
  late_ = nullptr;
}

void ConnectionExchange::write(std::string_view bytes) { channel_->append(bytes); }

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
    channel_->refuse_more();
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

// In a stream nothing can be said any more but by its missing end. What works for the request is
// told, as when the client leaves.
void ConnectionExchange::fail() {
  if (is_over_) {  // the connection is about something else by now
    return;
  }
  const auto gone = std::exchange(gone_, nullptr);
  if (is_streaming_) {
    channel_->cut();
  } else {
    reply(channel_->internal_error());
  }
  run_last(gone);
}

void ConnectionExchange::finish() {
  is_over_ = true;
  forget();
  channel_->wake();
}

}  // namespace nibble::server
