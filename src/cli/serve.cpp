#include "server/serve.h"

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <utility>

#include "cli/flags.h"
#include "cli/serving_flags.h"
#include "cli/verbs.h"

namespace nibble::cli {
namespace {

constexpr const char* kAddressGroup = "Address";
constexpr const char* kLimitsGroup = "Limits";
constexpr const char* kAccessGroup = "Access";
constexpr const char* kLogGroup = "Log";
constexpr std::int32_t kMostSeconds = 1'000'000;

struct ServeFlags {
  ModelFlags model;
  server::ServeOptions serve;
  std::string config;  // read before the flags are parsed: config_file.h
  std::int64_t max_body = 32 << 20;
  std::int64_t max_header = 16 << 10;
  std::int64_t stream_buffer = 256 << 10;
  std::int32_t keep_alive_s = 75;
  std::int32_t read_s = 30;
  std::int32_t write_s = 30;
  std::int32_t request_s = 0;
  std::int32_t shutdown_s = 30;
  std::int32_t status_s = 10;
  std::string log_format = "text";
  std::string log_level = "info";
  bool hides_requests = false;
};

void add_address_flags(CLI::App& verb, ServeFlags& flags) {
  server::ListenerOptions& listener = flags.serve.listener;
  const auto group = [](CLI::Option* option) { option->group(kAddressGroup); };
  group(add_text(verb,
                 {"--host", "ADDRESS",
                  "address to listen on (default 127.0.0.1: this machine only;\n0.0.0.0: every "
                  "network)"},
                 listener.host));
  group(add_integer(verb, {"--port", "N", "port (default 8000; 0: any free one)"}, {0, 65535},
                    listener.port));
  group(add_text(verb, {"--uds", "PATH", "a Unix socket instead of host and port"}, listener.uds));
  group(add_text(verb, {"--ssl-certfile", "FILE", "certificate chain in PEM: serve TLS"},
                 listener.certificate));
  group(add_text(verb, {"--ssl-keyfile", "FILE", "its private key"}, listener.key));
  group(add_text(verb, {"--config", "FILE", "flags from a file of lines such as port: 9000"},
                 flags.config));
}

void add_access_flags(CLI::App& verb, ServeFlags& flags) {
  server::ApiOptions& api = flags.serve.api;
  const auto group = [](CLI::Option* option) { option->group(kAccessGroup); };
  group(add_served_names(verb, api.model_names));
  group(add_texts(verb,
                  {"--api-key", "KEY",
                   "clients must send this key; may be repeated; better in\n"
                   "NIBBLE_API_KEY, where other users do not see it"},
                  api.api_keys));
  group(add_texts(verb,
                  {"--allowed-origins", "ORIGIN",
                   "web pages of this origin may call the server; '*': all;\nmay be repeated"},
                  api.allowed_origins));
}

void add_limit_flags(CLI::App& verb, ServeFlags& flags) {
  constexpr IntRange kBytes{1024, std::int64_t{1} << 31};
  constexpr IntRange kSeconds{0, kMostSeconds};
  const auto group = [](CLI::Option* option) { option->group(kLimitsGroup); };
  group(add_integer(
      verb, {"--max-queued-requests", "N", "requests that may wait; more get 503 (default 1024)"},
      {0, 1 << 24}, flags.serve.service.max_queued));
  group(add_integer(verb, {"--max-connections", "N", "open connections (default 10000)"},
                    {1, 1 << 20}, flags.serve.listener.max_connections));
  group(add_count(verb, {"--max-body-size", "BYTES", "of a request (default 32M)"}, kBytes,
                  flags.max_body));
  group(add_count(verb,
                  {"--gzip-min-size", "BYTES",
                   "JSON replies from this size are compressed for clients that\nallow it (default "
                   "2K; 0: none)"},
                  {0, std::int64_t{1} << 31}, flags.serve.api.gzip_from_bytes));
  group(add_count(verb, {"--max-header-size", "BYTES", "of a request (default 16K)"}, kBytes,
                  flags.max_header));
  group(add_count(verb,
                  {"--stream-buffer", "BYTES",
                   "what a stream may leave unread before it is cut (default 256K)"},
                  kBytes, flags.stream_buffer));
  group(add_count(verb,
                  {"--response-store-size", "BYTES",
                   "what /v1/responses keeps for later (default 64M; 0: nothing)"},
                  {0, std::int64_t{1} << 40}, flags.serve.api.response_store_bytes));
  group(add_integer(verb,
                    {"--request-timeout", "S", "longest time for an answer (default 0: none)"},
                    kSeconds, flags.request_s));
  group(add_integer(verb, {"--keep-alive-timeout", "S", "between requests (default 75)"}, kSeconds,
                    flags.keep_alive_s));
  group(add_integer(verb, {"--read-timeout", "S", "for a request to arrive (default 30)"}, kSeconds,
                    flags.read_s));
  group(add_integer(verb,
                    {"--write-timeout", "S", "without a byte taken by the client (default 30)"},
                    kSeconds, flags.write_s));
  group(add_integer(
      verb,
      {"--shutdown-timeout", "S", "for running requests to finish after SIGTERM (default 30)"},
      kSeconds, flags.shutdown_s));
  group(add_integer(verb, {"--http-threads", "N", "threads that serve HTTP (default 2)"}, {1, 256},
                    flags.serve.listener.num_threads));
}

void add_log_flags(CLI::App& verb, ServeFlags& flags) {
  const auto group = [](CLI::Option* option) { option->group(kLogGroup); };
  group(add_choice(verb, {"--log-format", "text|json", "lines on standard error (default text)"},
                   {"text", "json"}, flags.log_format));
  group(add_choice(verb, {"--log-level", "LEVEL", "error, warning, info (default) or debug"},
                   {"error", "warning", "info", "debug"}, flags.log_level));
  group(
      add_switch(verb, "--disable-log-requests", flags.hides_requests, "no line for each request"));
  group(add_integer(verb, {"--status-interval", "S", "between status lines (default 10; 0: none)"},
                    {0, kMostSeconds}, flags.status_s));
}

server::LogLevel level_of(const std::string& name) {
  return name == "error"     ? server::LogLevel::kError
         : name == "warning" ? server::LogLevel::kWarning
         : name == "debug"   ? server::LogLevel::kDebug
                             : server::LogLevel::kInfo;
}

server::ServeOptions options_of(const ServeFlags& flags, const std::string& folder) {
  server::ServeOptions out = flags.serve;
  out.service.engine = engine_options(flags.model, folder);
  out.listener.max_body_bytes = flags.max_body;
  out.api.body_bytes = flags.max_body;
  out.listener.max_header_bytes = flags.max_header;
  out.listener.stream_buffer_bytes = flags.stream_buffer;
  out.listener.idle_timeout = std::chrono::seconds(flags.keep_alive_s);
  out.listener.read_timeout = std::chrono::seconds(flags.read_s);
  out.listener.write_timeout = std::chrono::seconds(flags.write_s);
  out.api.request_timeout = std::chrono::seconds(flags.request_s);
  out.api.logs_requests = !flags.hides_requests;
  out.shutdown_timeout = std::chrono::seconds(flags.shutdown_s);
  out.status_interval = std::chrono::seconds(flags.status_s);
  out.is_json_log = flags.log_format == "json";
  out.log_level = level_of(flags.log_level);
  out.api.model_names = served_names(out.api.model_names, flags.model, folder);
  return out;
}

Outcome serve(Host& host, const ServeFlags& flags) {
  const Result<std::string> folder =
      find_model(host, flags.model.model, load_format(flags.model.load_format));
  if (!folder) {
    return failed(folder.error(), During::kLoad);
  }
  const server::ServeOutcome outcome = host.backend.serve(options_of(flags, *folder), host.err);
  switch (outcome.end) {
    case server::ServeEnd::kDrained: return done();
    case server::ServeEnd::kAborted:
      return {static_cast<Exit>(128 + outcome.signal), "ended before all requests were answered"};
    case server::ServeEnd::kAddressInUse: return {Exit::kAddressInUse, outcome.status.message()};
    case server::ServeEnd::kFailed: break;
  }
  return failed_to_load(host, outcome.status, device_choice(flags.model.device),
                        flags.model.engine.is_deterministic);
}

}  // namespace

void add_serve(CLI::App& app, Invocation& invocation) {
  CLI::App& verb = add_verb(
      app,
      {"serve", "an OpenAI-compatible server",
       "  nibble serve                                  the demo model on port 8000\n"
       "  nibble serve MODEL --port 9000 --api-key KEY\n"
       "  nibble serve MODEL --host 0.0.0.0 --ssl-certfile a.pem --ssl-keyfile a.key\n"
       "  nibble serve MODEL --uds /run/nibble.sock --log-format json\n"
       "  curl localhost:8000/v1/chat/completions -H 'content-type: application/json' \\\n"
       "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Tell me a story.\"}]}'\n"});
  auto flags = std::make_shared<ServeFlags>();
  add_model_flags(verb, flags->model);
  add_address_flags(verb, *flags);
  add_access_flags(verb, *flags);
  add_batching_flags(verb, flags->model.engine);
  add_limit_flags(verb, *flags);
  add_log_flags(verb, *flags);
  set_action(verb, invocation, [&invocation, flags] { return serve(invocation.host, *flags); });
}

}  // namespace nibble::cli
