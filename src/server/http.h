// One HTTP request and the way back, without sockets: handlers and their tests know no more of
// HTTP.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nibble::server {

struct Header {
  std::string name;  // of requests in lower case
  std::string value;
};

struct HttpRequest {
  std::string method;
  std::string path;   // without the query
  std::string query;  // without '?'
  std::vector<Header> headers;
  std::string body;

  // The first of that name, given in lower case; empty when there is none.
  std::string_view header(std::string_view name) const {
    for (const Header& header : headers) {
      if (header.name == name) {
        return header.value;
      }
    }
    return {};
  }
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<Header> headers;
  std::string body;
};

// The way back of one request: either one whole reply, or a stream of chunks. All calls belong to
// one executor, on which the handler runs as well; only `post` may come from other threads. Calls
// after the end, or after the client has left, do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Runs `work` on the executor, in order of posting.
  virtual void post(std::function<void()> work) = 0;

  virtual void reply(HttpReply reply) = 0;

  // The head of a stream; its body is ignored. Then chunks, then the end.
  virtual void begin_stream(HttpReply head) = 0;
  // A reader that lets more than the stream's buffer pile up counts as gone.
  virtual void send(std::string_view chunk) = 0;
  virtual void end_stream() = 0;

  // Called at most once, when the client has left or reads too slowly; at once if it has by now.
  virtual void when_gone(std::function<void()> action) = 0;
  // Called once `after` has passed without an end; zero: never.
  virtual void when_late(std::chrono::milliseconds after, std::function<void()> action) = 0;

  // Goes into the head of whatever is sent.
  void add_header(std::string name, std::string value) {
    headers_.push_back({std::move(name), std::move(value)});
  }
  const std::vector<Header>& added_headers() const { return headers_; }
  // The client's x-request-id, or one of ours; for logs and answers.
  std::string request_id;

 private:
  std::vector<Header> headers_;
};

using ExchangePtr = std::shared_ptr<Exchange>;
using Handler = std::function<void(const HttpRequest&, const ExchangePtr&)>;

}  // namespace nibble::server
