#include "server/listener.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/connection.h"

namespace nibble::server {
namespace {

using Tcp = asio::ip::tcp;
using Local = asio::local::stream_protocol;

constexpr int kBacklog = 4096;
constexpr std::chrono::milliseconds kTick{1000};
// After a failed accept (no descriptors left, say): wait for connections to end.
constexpr std::chrono::milliseconds kAcceptPause{20};

}  // namespace

struct Listener::Impl {
  explicit Impl(const ListenerOptions& wanted, ListenerHooks given)
      : options(wanted),
        hooks(std::move(given)),
        context{.limits = {.header_bytes = wanted.max_header_bytes,
                           .body_bytes = wanted.max_body_bytes,
                           .stream_bytes = wanted.stream_buffer_bytes,
                           .idle = wanted.idle_timeout,
                           .read = wanted.read_timeout,
                           .write = wanted.write_timeout},
                .handler = hooks.handler,
                .malformed = hooks.malformed,
                .num_answering = &num_answering,
                .is_closing = hooks.is_closing},
        signals(io),
        ticker(io) {}

  Status prepare_tls();
  ErrorCode bind();
  ErrorCode bind_tcp();
  ErrorCode bind_local();
  void start();
  template <typename Acceptor>
  asio::awaitable<void> accept(Acceptor& acceptor);
  void serve(Socket socket, const asio::any_io_executor& executor);
  void wait_for_signal();
  void tick();

  ListenerOptions options;
  ListenerHooks hooks;
  ConnectionContext context;
  std::shared_ptr<asio::ssl::context> tls;
  std::atomic<std::int32_t> num_connections{0};
  std::atomic<std::int32_t> num_answering{0};
  std::int32_t port = 0;
  // Last, so that it ends first: what it still holds refers to the rest.
  asio::io_context io;
  std::optional<Tcp::acceptor> tcp;
  std::optional<Local::acceptor> local;
  asio::signal_set signals;
  asio::steady_timer ticker;
  std::vector<std::thread> threads;
};

Status Listener::Impl::prepare_tls() {
  if (options.certificate.empty() != options.key.empty()) {
    return error(Code::kInvalidArgument, "want both --ssl-certfile and --ssl-keyfile, found {}",
                 options.key.empty() ? "the first only" : "the second only");
  }
  if (!options.certificate.empty()) {
    NIBBLE_ASSIGN_OR_RETURN(tls, make_tls_context(options.certificate, options.key));
  }
  return {};
}

ErrorCode Listener::Impl::bind_tcp() {
  ErrorCode failed;
  Tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), Tcp::resolver::passive, failed);
  if (failed) {
    return failed;
  }
  const Tcp::endpoint endpoint = found.begin()->endpoint();
  tcp.emplace(io);
  tcp->open(endpoint.protocol(), failed);
  if (!failed) {
    tcp->set_option(asio::socket_base::reuse_address(true), failed);
  }
  if (!failed) {
    tcp->bind(endpoint, failed);
  }
  if (!failed) {
    tcp->listen(kBacklog, failed);
  }
  if (!failed) {
    port = tcp->local_endpoint(failed).port();
  }
  return failed;
}

// A socket file outlives its server: one that refuses connections is nobody's.
ErrorCode Listener::Impl::bind_local() {
  ErrorCode failed;
  if (options.uds.size() > 100) {
    return asio::error::name_too_long;
  }
  const Local::endpoint endpoint(options.uds);
  Local::socket probe(io);
  probe.connect(endpoint, failed);
  if (!failed) {
    return asio::error::address_in_use;
  }
  if (failed == asio::error::connection_refused) {
    unlink(options.uds.c_str());
  }
  local.emplace(io);
  local->open(endpoint.protocol(), failed);
  if (!failed) {
    local->bind(endpoint, failed);
  }
  if (!failed) {
    local->listen(kBacklog, failed);
  }
  return failed;
}

ErrorCode Listener::Impl::bind() { return options.uds.empty() ? bind_tcp() : bind_local(); }

template <typename Acceptor>
asio::awaitable<void> Listener::Impl::accept(Acceptor& acceptor) {
  while (acceptor.is_open()) {
    const asio::any_io_executor executor = asio::make_strand(io);
    typename Acceptor::protocol_type::socket socket(executor);
    ErrorCode failed;
    co_await acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, failed));
    if (failed == asio::error::operation_aborted) {
      co_return;
    }
    if (failed) {
      asio::steady_timer pause(io, kAcceptPause);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, failed));
      continue;
    }
    if constexpr (std::is_same_v<Acceptor, Tcp::acceptor>) {
      ErrorCode ignored;
      socket.set_option(Tcp::no_delay(true), ignored);
    }
    serve(Socket(std::move(socket)), executor);
  }
}

void Listener::Impl::serve(Socket socket, const asio::any_io_executor& executor) {
  if (num_connections >= options.max_connections) {
    return;  // closes
  }
  // The system would keep megabytes for a client that does not read, unseen by our own limit.
  ErrorCode ignored;
  socket.set_option(
      asio::socket_base::send_buffer_size(static_cast<int>(options.stream_buffer_bytes)), ignored);
  ++num_connections;
  auto wire =
      tls != nullptr ? make_tls_wire(std::move(socket), *tls) : make_plain_wire(std::move(socket));
  start_connection(executor, std::move(wire), context, [this] { --num_connections; });
}

void Listener::Impl::wait_for_signal() {
  signals.async_wait([this](const ErrorCode& cancelled, int signal) {
    if (!cancelled) {
      hooks.on_signal(signal);
      wait_for_signal();
    }
  });
}

void Listener::Impl::tick() {
  ticker.expires_after(kTick);
  ticker.async_wait([this](const ErrorCode& cancelled) {
    if (!cancelled) {
      hooks.on_tick();
      tick();
    }
  });
}

void Listener::Impl::start() {
  if (tcp.has_value()) {
    asio::co_spawn(io, accept(*tcp), asio::detached);
  } else {
    asio::co_spawn(io, accept(*local), asio::detached);
  }
  if (hooks.on_signal) {
    signals.add(SIGINT);
    signals.add(SIGTERM);
    wait_for_signal();
  }
  if (hooks.on_tick) {
    tick();
  }
  for (std::int32_t i = 0; i < options.num_threads; ++i) {
    threads.emplace_back([this] { io.run(); });
  }
}

Listener::Listener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<Listener> Listener::open(const ListenerOptions& options, ListenerHooks hooks,
                                         ListenFailure& failure) {
  auto impl = std::make_unique<Impl>(options, std::move(hooks));
  failure.status = impl->prepare_tls();
  if (!failure.status.ok()) {
    return nullptr;
  }
  if (const ErrorCode failed = impl->bind()) {
    failure.is_address_in_use = failed == asio::error::address_in_use;
    const std::string where =
        options.uds.empty() ? fmt::format("{}:{}", options.host, options.port) : options.uds;
    failure.status = error(Code::kInternal, "cannot listen on {}: {}", where, failed.message());
    return nullptr;
  }
  impl->start();
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

Listener::~Listener() { close(); }

std::int32_t Listener::port() const { return impl_->port; }
std::int32_t Listener::num_connections() const { return impl_->num_connections; }
std::int32_t Listener::num_answering() const { return impl_->num_answering; }

std::string Listener::url() const {
  const ListenerOptions& options = impl_->options;
  if (!options.uds.empty()) {
    return "unix:" + options.uds;
  }
  const bool is_v6 = options.host.find(':') != std::string::npos;
  return fmt::format("{}://{}:{}", impl_->tls != nullptr ? "https" : "http",
                     is_v6 ? "[" + options.host + "]" : options.host, impl_->port);
}

void Listener::close() {
  impl_->io.stop();
  for (std::thread& thread : impl_->threads) {
    thread.join();
  }
  impl_->threads.clear();
  if (!impl_->options.uds.empty()) {
    unlink(impl_->options.uds.c_str());
  }
}

}  // namespace nibble::server
