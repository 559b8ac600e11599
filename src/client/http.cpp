#include "client/http.h"

#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"

namespace nibble::client {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr std::size_t kPieceBytes = 16384;

struct Connection {
  explicit Connection(asio::io_context& context) : stream(context) {}

  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  bool was_used = false;
};

// How sending and receiving went.
struct Conversation {
  error_code fault;
  bool is_connected = false;
  bool is_answered = false;  // a status came
  bool is_kept = false;      // the connection can be used again
};

// Every error has a code; what is thrown all the same is a lack of memory or a bug.
void end_if_thrown(const std::exception_ptr& thrown) {
  if (thrown) {
    std::terminate();
  }
}

class Runner {
 public:
  Runner(const ServerAddress& address, const std::vector<Header>& headers,
         const ExchangeLimits& limits, const ExchangeEvents& events)
      : address_(address), headers_(headers), limits_(limits), events_(events), slot_(context_) {}

  Status run(const std::vector<Exchange>& exchanges) {
    error_code fault;
    Tcp::resolver resolver(context_);
    endpoints_ = resolver.resolve(address_.host, address_.port, fault);
    if (fault) {
      return error(Code::kNotFound, "{}:{}: {}", address_.host, address_.port, fault.message());
    }
    asio::co_spawn(context_, dispatch(exchanges), &end_if_thrown);
    context_.run();
    return {};
  }

 private:
  // Starts each exchange at its time, as soon as a slot is free.
  asio::awaitable<void> dispatch(const std::vector<Exchange>& exchanges) {
    const Clock::time_point begin = Clock::now();
    asio::steady_timer arrival(context_);
    for (std::size_t i = 0; i < exchanges.size(); ++i) {
      error_code ignored;
      const auto due = begin + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(exchanges[i].start));
      if (due > Clock::now()) {
        arrival.expires_at(due);
        co_await arrival.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      }
      while (limits_.max_concurrency > 0 && num_running_ >= limits_.max_concurrency) {
        slot_.expires_at(Clock::time_point::max());
        co_await slot_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      }
      ++num_running_;
      asio::co_spawn(context_, exchange(i, exchanges[i]), &end_if_thrown);
    }
  }

  asio::awaitable<void> exchange(std::size_t index, const Exchange& wanted) {
    const Clock::time_point start = Clock::now();
    const auto deadline = start + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(limits_.timeout_s));
    if (events_.on_start) {
      events_.on_start(index, start);
    }
    Conversation went;
    bool is_again = true;
    while (is_again) {
      std::unique_ptr<Connection> connection = take_connection();
      connection->stream.expires_at(deadline);
      went = {.is_connected = connection->was_used};
      co_await converse(*connection, index, wanted, went);
      // A server may close a kept connection at any time: then a new one decides.
      is_again = went.fault && connection->was_used && !went.is_answered &&
                 went.fault != beast::error::timeout;
      if (is_again) {
        idle_.clear();
      } else if (went.is_kept) {
        connection->was_used = true;
        connection->stream.expires_never();
        idle_.push_back(std::move(connection));
      }
    }
    if (events_.on_end) {
      events_.on_end(index, status_of(went));
    }
    --num_running_;
    slot_.cancel();
  }

  std::unique_ptr<Connection> take_connection() {
    if (idle_.empty()) {
      return std::make_unique<Connection>(context_);
    }
    std::unique_ptr<Connection> connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
  }

  asio::awaitable<void> converse(Connection& connection, std::size_t index, const Exchange& wanted,
                                 Conversation& went) {
    beast::tcp_stream& stream = connection.stream;
    if (!went.is_connected) {
      co_await stream.async_connect(endpoints_,
                                    asio::redirect_error(asio::use_awaitable, went.fault));
      if (went.fault) {
        co_return;
      }
      went.is_connected = true;
      error_code ignored;
      stream.socket().set_option(Tcp::no_delay(true), ignored);
    }
    http::request<http::span_body<const char>> request = request_for(wanted);
    co_await http::async_write(stream, request,
                               asio::redirect_error(asio::use_awaitable, went.fault));
    if (!went.fault) {
      co_await receive(connection, index, went);
    }
  }

  asio::awaitable<void> receive(Connection& connection, std::size_t index, Conversation& went) {
    http::response_parser<http::buffer_body> parser;
    // Not "none", which Boost 1.74 takes for less than every Content-Length.
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());
    co_await http::async_read_header(connection.stream, connection.buffer, parser,
                                     asio::redirect_error(asio::use_awaitable, went.fault));
    if (went.fault) {
      co_return;
    }
    went.is_answered = true;
    if (events_.on_status) {
      events_.on_status(index, static_cast<int>(parser.get().result_int()));
    }
    std::array<char, kPieceBytes> piece{};
    while (!parser.is_done() && !went.fault) {
      auto& body = parser.get().body();
      body.data = piece.data();
      body.size = piece.size();
      body.more = true;
      co_await http::async_read_some(connection.stream, connection.buffer, parser,
                                     asio::redirect_error(asio::use_awaitable, went.fault));
      if (went.fault == http::error::need_buffer) {
        went.fault = {};
      }
      const std::size_t count = piece.size() - body.size;
      if (count > 0 && events_.on_body) {
        events_.on_body(index, {piece.data(), count}, Clock::now());
      }
    }
    went.is_kept = !went.fault && parser.keep_alive();
  }

  http::request<http::span_body<const char>> request_for(const Exchange& wanted) const {
    const bool is_get = wanted.body.empty();
    http::request<http::span_body<const char>> request(is_get ? http::verb::get : http::verb::post,
                                                       address_.prefix + wanted.target, 11);
    const bool is_v6 = address_.host.find(':') != std::string::npos;
    const std::string host = is_v6 ? "[" + address_.host + "]" : address_.host;
    request.set(http::field::host, host + ":" + address_.port);
    request.set(http::field::user_agent, "nibble");
    if (!is_get) {
      request.set(http::field::content_type, "application/json");
      request.body() = {wanted.body.data(), wanted.body.size()};
    }
    for (const Header& header : headers_) {
      request.set(header.name, header.value);
    }
    if (!is_get) {
      request.prepare_payload();
    }
    return request;
  }

  Status status_of(const Conversation& went) const {
    if (!went.fault) {
      return {};
    }
    if (went.fault == beast::error::timeout) {
      return error(Code::kInternal, "no complete answer within {} s", limits_.timeout_s);
    }
    if (!went.is_connected) {
      return error(Code::kInternal, "connecting to {}:{}: {}", address_.host, address_.port,
                   went.fault.message());
    }
    const bool is_closed =
        went.fault == http::error::partial_message || went.fault == http::error::end_of_stream;
    return error(Code::kInternal, "{}: {}", went.is_answered ? "the answer broke off" : "no answer",
                 is_closed ? "the server closed the connection" : went.fault.message());
  }

  const ServerAddress& address_;
  const std::vector<Header>& headers_;
  const ExchangeLimits& limits_;
  const ExchangeEvents& events_;
  asio::io_context context_{1};
  Tcp::resolver::results_type endpoints_;
  std::vector<std::unique_ptr<Connection>> idle_;
  asio::steady_timer slot_;  // cancelled when an exchange ends
  std::int32_t num_running_ = 0;
};

}  // namespace

Result<ServerAddress> parse_base_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) {
    return error(Code::kUnsupported,
                 "want http://HOST[:PORT], found '{}'; TLS needs a proxy in front of the client",
                 url);
  }
  const auto wrong = [url] {
    return error(Code::kInvalidArgument, "want http://HOST[:PORT], found '{}'", url);
  };
  if (!url.starts_with(kScheme)) {
    return wrong();
  }
  std::string_view rest = url.substr(kScheme.size());
  ServerAddress address;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  address.prefix = rest.substr(slash);
  while (address.prefix.ends_with('/')) {
    address.prefix.pop_back();
  }
  rest = rest.substr(0, slash);
  const std::size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;
  if (bracket == std::string_view::npos) {
    return wrong();
  }
  const std::size_t colon = rest.find(':', bracket);
  std::string_view host = rest.substr(0, colon);
  if (bracket > 0 && bracket + 1 != host.size()) {
    return wrong();
  }
  host = bracket > 0 ? host.substr(1, bracket - 1) : host;
  const std::string_view port =
      colon == std::string_view::npos ? std::string_view("80") : rest.substr(colon + 1);
  const bool is_number = !port.empty() && port.size() <= 5 &&
                         port.find_first_not_of("0123456789") == std::string_view::npos;
  if (host.empty() || !is_number || std::stoi(std::string(port)) > 65535) {
    return wrong();
  }
  address.host = host;
  address.port = port;
  return address;
}

Status run_exchanges(const ServerAddress& address, const std::vector<Header>& headers,
                     const std::vector<Exchange>& exchanges, const ExchangeLimits& limits,
                     const ExchangeEvents& events) {
  return Runner(address, headers, limits, events).run(exchanges);
}

Result<Answer> get(const ServerAddress& address, const std::vector<Header>& headers,
                   const std::string& target, double timeout_s) {
  Answer answer;
  Status status;
  const ExchangeEvents events{.on_status = [&](std::size_t, int code) { answer.status = code; },
                              .on_body = [&](std::size_t, std::string_view bytes,
                                             Clock::time_point) { answer.body += bytes; },
                              .on_end = [&](std::size_t, const Status& ended) { status = ended; }};
  NIBBLE_RETURN_IF_ERROR(
      run_exchanges(address, headers, {{.target = target}}, {.timeout_s = timeout_s}, events));
  if (!status.ok()) {
    return status;
  }
  return answer;
}

}  // namespace nibble::client
