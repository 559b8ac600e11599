// Many HTTP/1.1 exchanges at once, from one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"

namespace nibble::client {

using Clock = std::chrono::steady_clock;

struct ServerAddress {
  std::string host;
  std::string port;
  std::string prefix;  // of every path: "" or "/some/path"
};
// "http://HOST[:PORT][/PREFIX]", also an IPv6 address in brackets. kUnsupported: https.
Result<ServerAddress> parse_base_url(std::string_view url);

struct Header {
  std::string name;
  std::string value;
};

struct Exchange {
  double start = 0.0;  // seconds after the beginning; ascending
  std::string target;  // "/v1/completions"; the prefix of the address comes before it
  std::string body;    // JSON; empty: GET
};

// Called in the thread that runs the exchanges, with the exchange's index.
struct ExchangeEvents {
  std::function<void(std::size_t, Clock::time_point)> on_start;  // about to be sent
  std::function<void(std::size_t, int status)> on_status;
  std::function<void(std::size_t, std::string_view, Clock::time_point)> on_body;  // as it comes
  std::function<void(std::size_t, const Status&)> on_end;  // once, last, whatever happened
};

struct ExchangeLimits {
  std::int32_t max_concurrency = 0;  // those beyond wait, in order; 0: none
  double timeout_s = 0.0;            // of each exchange, from its start
};

// Runs all of them; returns when the last has ended. Connections are kept and used again. What
// fails is one exchange (`on_end`); an error of the whole is a host that has no address
// (kNotFound).
Status run_exchanges(const ServerAddress& address, const std::vector<Header>& headers,
                     const std::vector<Exchange>& exchanges, const ExchangeLimits& limits,
                     const ExchangeEvents& events);

struct Answer {
  int status = 0;
  std::string body;
};
Result<Answer> get(const ServerAddress& address, const std::vector<Header>& headers,
                   const std::string& target, double timeout_s);

}  // namespace nibble::client
