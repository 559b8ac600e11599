#include "server/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "server/api_error.h"
#include "server/aside.h"
#include "server/content_coding.h"
#include "server/handlers.h"
#include "server/json.h"
#include "server/page.h"

namespace nibble::server {
namespace {

constexpr std::size_t kMostIdBytes = 128;
// Some milliseconds of tokenizing, for which nobody else shall wait.
constexpr std::size_t kLargeBody = 64 << 10;

struct Route {
  const char* method;
  const char* path;  // "*" stands for one segment
  void (*handle)(const Call& call);
  bool is_open = false;  // needs no key
};

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", &chat_completions},
    {"POST", "/v1/completions", &completions},
    {"POST", "/v1/messages", &messages},
    {"POST", "/v1/messages/count_tokens", &count_tokens},
    {"POST", "/v1/responses", &responses},
    {"GET", "/v1/responses/*", &get_response},
    {"DELETE", "/v1/responses/*", &delete_response},
    {"POST", "/v1/responses/*/cancel", &cancel_response},
    {"GET", "/v1/models", &models},
    {"POST", "/v1/embeddings", &embeddings},
    {"POST", "/tokenize", &tokenize},
    {"POST", "/detokenize", &detokenize},
    {"GET", "/metrics", &metrics, true},
};

bool matches(std::string_view path, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) {
    return path == pattern;
  }
  const std::string_view tail = pattern.substr(star + 1);
  if (!path.starts_with(pattern.substr(0, star)) || !path.ends_with(tail) ||
      path.size() <= star + tail.size()) {
    return false;
  }
  return path.substr(star, path.size() - star - tail.size()).find('/') == std::string_view::npos;
}

// Counts the exchange as open, and its reply, for as long as it lives; compresses the reply.
class Counted final : public Exchange {
 public:
  Counted(ApiContext& context, const HttpRequest& request, ExchangePtr inner)
      : context_(context),
        inner_(std::move(inner)),
        takes_gzip_(accepts_gzip(request.header("accept-encoding"))) {
    ++context_.num_open;
  }
  ~Counted() override { --context_.num_open; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  void post(std::function<void()> work) override { inner_->post(std::move(work)); }
  void reply(HttpReply reply) override {
    finish(reply.status);
    compress(reply);
    inner_->reply(std::move(reply));
  }
  void begin_stream(HttpReply head) override {
    finish(head.status);
    inner_->begin_stream(std::move(head));
  }
  void send(std::string_view chunk) override { inner_->send(chunk); }
  void end_stream() override { inner_->end_stream(); }
  void when_gone(std::function<void()> action) override { inner_->when_gone(std::move(action)); }
  void when_late(std::chrono::milliseconds after, std::function<void()> action) override {
    inner_->when_late(after, std::move(action));
  }

 private:
  void finish(int status) {
    for (const Header& header : added_headers()) {
      inner_->add_header(header.name, header.value);
    }
    if (Loaded* loaded = context_.loaded) {
      loaded->metrics->on_reply(status);
    }
  }

  // The page comes compressed already.
  void compress(HttpReply& reply) const {
    const std::int64_t from = context_.options.gzip_from_bytes;
    const bool is_wanted = from > 0 && static_cast<std::int64_t>(reply.body.size()) >= from &&
                           reply.content_type.starts_with("application/json");
    if (!is_wanted) {
      return;
    }
    reply.headers.push_back({"vary", "accept-encoding"});
    if (takes_gzip_) {
      reply.headers.push_back({"content-encoding", "gzip"});
      reply.body = gzip(reply.body);
    }
  }

  ApiContext& context_;
  ExchangePtr inner_;
  bool takes_gzip_ = false;
};

// The request with its body decompressed; without a value the fault is a refusal.
std::optional<HttpRequest> decoded(const ApiContext& context, const HttpRequest& request,
                                   ApiError& fault) {
  const std::string_view coding = request.header("content-encoding");
  if (coding.empty() || coding == "identity") {
    return request;
  }
  if (coding != "gzip" && coding != "x-gzip") {
    fault = {415, fmt::format("content-encoding: want gzip, found '{}'", coding.substr(0, 100)),
             "invalid_request_error", "", "unsupported_content_encoding"};
    return std::nullopt;
  }
  Result<std::string> body =
      gunzip(request.body, static_cast<std::size_t>(context.options.body_bytes));
  if (!body) {
    fault = bad_request("", body.error().message());
    fault.status = body.error().code() == Code::kExhausted ? 413 : 400;
    return std::nullopt;
  }
  HttpRequest out = request;
  out.body = *std::move(body);
  return out;
}

// Hands the request over with its body as it was before it was compressed.
void handle(const Route& route, ApiContext& context, Loaded& loaded, const HttpRequest& request,
            const ExchangePtr& exchange) {
  ApiError fault;
  if (request.header("content-encoding").empty()) {
    route.handle({context, loaded, request, exchange});
  } else if (const std::optional<HttpRequest> plain = decoded(context, request, fault)) {
    route.handle({context, loaded, *plain, exchange});
  } else {
    HttpReply reply = error_reply(fault);
    reply.headers.push_back({"accept-encoding", "gzip"});
    exchange->reply(std::move(reply));
  }
}

// False: the id that the client gave is refused.
bool take_id(const HttpRequest& request, Exchange& exchange) {
  const std::string_view given = request.header("x-request-id");
  const bool is_fine =
      given.size() <= kMostIdBytes &&
      std::all_of(given.begin(), given.end(), [](char c) { return c > ' ' && c < 0x7F; });
  exchange.request_id = given.empty() || !is_fine ? new_id("req-") : std::string(given);
  exchange.add_header("x-request-id", exchange.request_id);
  if (!is_fine) {
    exchange.reply(error_reply(bad_request(
        "x-request-id", fmt::format("x-request-id: want at most {} visible ASCII characters, "
                                    "found {} bytes",
                                    kMostIdBytes, given.size()))));
  }
  return is_fine;
}

void allow_origin(const ApiContext& context, const HttpRequest& request, Exchange& exchange) {
  const std::string_view origin = request.header("origin");
  const auto& allowed = context.options.allowed_origins;
  const bool is_any = std::find(allowed.begin(), allowed.end(), "*") != allowed.end();
  const bool is_allowed =
      is_any || std::find(allowed.begin(), allowed.end(), origin) != allowed.end();
  if (origin.empty() || !is_allowed) {
    return;
  }
  exchange.add_header("access-control-allow-origin", is_any ? "*" : std::string(origin));
  exchange.add_header("access-control-expose-headers", "x-request-id");
  if (!is_any) {
    exchange.add_header("vary", "origin");
  }
  if (request.method == "OPTIONS") {
    exchange.add_header("access-control-allow-methods", "GET, POST, DELETE, OPTIONS");
    exchange.add_header("access-control-allow-headers",
                        "authorization, content-type, x-api-key, x-request-id");
    exchange.add_header("access-control-max-age", "600");
  }
}

bool has_key(const ApiContext& context, const HttpRequest& request) {
  const auto& keys = context.options.api_keys;
  if (keys.empty()) {
    return true;
  }
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view given = request.header("authorization");
  given = given.starts_with(kBearer) ? given.substr(kBearer.size()) : request.header("x-api-key");
  bool is_known = false;
  for (const std::string& key : keys) {  // all of them, always
    is_known = is_same_key(given, key) || is_known;
  }
  return is_known;
}

// Ready for requests? llama.cpp's form while loading.
void health(const ApiContext& context, Exchange& exchange) {
  Loaded* loaded = context.loaded;
  if (loaded == nullptr) {
    exchange.reply(unavailable_reply("Loading model"));
    return;
  }
  const ServiceStats stats = loaded->host->stats();
  if (stats.state == ServiceState::kFailed) {
    exchange.reply(unavailable_reply("The engine has failed: " + stats.failure.message()));
  } else if (context.is_draining) {
    exchange.reply(unavailable_reply("Shutting down"));
  } else {
    exchange.reply({.body = R"({"status":"ok"})"});
  }
}

// Worth keeping alive? Only a failed engine is not.
void live(const ApiContext& context, Exchange& exchange) {
  Loaded* loaded = context.loaded;
  if (loaded != nullptr && loaded->host->stats().state == ServiceState::kFailed) {
    health(context, exchange);
  } else {
    exchange.reply({.body = R"({"status":"alive"})"});
  }
}

// Endpoints that answer in every state, without a key.
bool answer_always(const ApiContext& context, const HttpRequest& request, Exchange& exchange) {
  const bool is_get = request.method == "GET" || request.method == "HEAD";
  if (request.method == "OPTIONS") {
    exchange.reply({.status = 204, .content_type = ""});
  } else if (is_get && request.path == "/health") {
    health(context, exchange);
  } else if (is_get && request.path == "/live") {
    live(context, exchange);
  } else if (is_get && request.path == "/version") {
    exchange.reply({.body = dump({{"version", NIBBLE_VERSION}})});
  } else {
    return answer_page(request, exchange);
  }
  return true;
}

void refuse_path(const HttpRequest& request, Exchange& exchange) {
  std::string methods;
  for (const Route& route : kRoutes) {
    if (matches(request.path, route.path)) {
      methods += (methods.empty() ? "" : ", ") + std::string(route.method);
    }
  }
  if (methods.empty()) {
    exchange.reply(error_reply(not_found(
        fmt::format("no such endpoint: {} {}", request.method, request.path.substr(0, 200)))));
    return;
  }
  HttpReply reply =
      error_reply({405, fmt::format("{}: want {}, found {}", request.path, methods, request.method),
                   "invalid_request_error", "", "method_not_allowed"});
  reply.headers.push_back({"allow", methods});
  exchange.reply(std::move(reply));
}

void route(ApiContext& context, const HttpRequest& request, const ExchangePtr& exchange) {
  if (!take_id(request, *exchange)) {
    return;
  }
  allow_origin(context, request, *exchange);
  if (answer_always(context, request, *exchange)) {
    return;
  }
  const std::string_view method =
      request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
  const auto* found = std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& one) {
    return matches(request.path, one.path) && method == one.method;
  });
  if ((found == std::end(kRoutes) || !found->is_open) && !has_key(context, request)) {
    exchange->reply(error_reply(
        {401, "the API key is missing or wrong", "authentication_error", "", "invalid_api_key"}));
    return;
  }
  if (found == std::end(kRoutes)) {
    refuse_path(request, *exchange);
    return;
  }
  Loaded* loaded = context.loaded;
  if (loaded == nullptr) {
    exchange->reply(unavailable_reply("Loading model"));
  } else if (context.is_draining && method == "POST") {
    exchange->reply(error_reply(
        {503, "the server is shutting down", "unavailable_error", "", "shutting_down"}));
  } else {
    handle(*found, context, *loaded, request, exchange);
  }
}

}  // namespace

bool is_same_key(std::string_view given, std::string_view key) {
  if (key.empty()) {
    return false;
  }
  std::size_t difference = given.size() ^ key.size();
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i] ^ key[i % key.size()]);
  }
  return difference == 0;
}

Handler make_api(ApiContext& context) {
  return [&context](const HttpRequest& request, const ExchangePtr& exchange) {
    // A compressed body may be of any size.
    const bool is_large =
        request.body.size() >= kLargeBody || !request.header("content-encoding").empty();
    if (!is_large || !context.run_aside) {
      route(context, request, std::make_shared<Counted>(context, request, exchange));
      return;
    }
    auto held = std::make_shared<HeldExchange>(exchange);
    auto counted = std::make_shared<Counted>(context, request, held);  // from now on
    handle_aside(context.run_aside, exchange, std::move(held),
                 [&context, request, counted] { route(context, request, counted); });
  };
}

}  // namespace nibble::server
