#include "server/wire.h"

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <utility>

#include "base/error.h"

namespace nibble::server {
namespace {

auto token(ErrorCode& error) { return asio::redirect_error(asio::use_awaitable, error); }

class PlainWire final : public Wire {
 public:
  explicit PlainWire(Socket socket) : socket_(std::move(socket)) {
    ErrorCode ignored;
    socket_.non_blocking(true, ignored);
  }

  asio::awaitable<void> handshake(ErrorCode& /*error*/) override { co_return; }
  asio::awaitable<std::size_t> read_some(asio::mutable_buffer into, ErrorCode& error) override {
    co_return co_await socket_.async_read_some(into, token(error));
  }
  asio::awaitable<std::size_t> write_some(asio::const_buffer from, ErrorCode& error) override {
    co_return co_await socket_.async_write_some(from, token(error));
  }
  std::size_t try_write(std::string_view bytes) override {
    ErrorCode would_wait;
    return socket_.write_some(asio::buffer(bytes.data(), bytes.size()), would_wait);
  }
  asio::awaitable<void> shutdown_send() override {
    ErrorCode ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    co_return;
  }
  void close() override {
    ErrorCode ignored;
    socket_.close(ignored);
  }

 private:
  Socket socket_;
};

class TlsWire final : public Wire {
 public:
  TlsWire(Socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}

  asio::awaitable<void> handshake(ErrorCode& error) override {
    co_await stream_.async_handshake(asio::ssl::stream_base::server, token(error));
  }
  asio::awaitable<std::size_t> read_some(asio::mutable_buffer into, ErrorCode& error) override {
    co_return co_await stream_.async_read_some(into, token(error));
  }
  asio::awaitable<std::size_t> write_some(asio::const_buffer from, ErrorCode& error) override {
    co_return co_await stream_.async_write_some(from, token(error));
  }
  std::size_t try_write(std::string_view /*bytes*/) override { return 0; }
  asio::awaitable<void> shutdown_send() override {
    // close_notify, which tells the client that the end is no cut. As if the client's had come: one
    // who waits for that takes what the client still sends for a fault.
    ErrorCode ignored;
    const auto begin = [this](auto handler) {
      SSL_set_shutdown(stream_.native_handle(), SSL_RECEIVED_SHUTDOWN);
      stream_.async_shutdown(std::move(handler));  // has made its bytes when this returns
      SSL_set_shutdown(stream_.native_handle(), SSL_SENT_SHUTDOWN);
    };
    auto into = token(ignored);
    co_await asio::async_initiate<decltype(into), void(ErrorCode)>(begin, into);
    stream_.next_layer().shutdown(Socket::shutdown_send, ignored);
  }
  void close() override {
    ErrorCode ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  asio::ssl::stream<Socket> stream_;
};

}  // namespace

std::unique_ptr<Wire> make_plain_wire(Socket socket) {
  return std::make_unique<PlainWire>(std::move(socket));
}

std::unique_ptr<Wire> make_tls_wire(Socket socket, asio::ssl::context& context) {
  return std::make_unique<TlsWire>(std::move(socket), context);
}

Result<std::shared_ptr<asio::ssl::context>> make_tls_context(const std::string& certificate,
                                                             const std::string& key) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  ErrorCode failed;
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                           asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                           asio::ssl::context::no_tlsv1_1,
                       failed);
  if (!failed) {
    context->use_certificate_chain_file(certificate, failed);
  }
  if (failed) {
    return error(Code::kInvalidArgument, "--ssl-certfile: want a certificate chain in PEM, {}: {}",
                 certificate, failed.message());
  }
  context->use_private_key_file(key, asio::ssl::context::pem, failed);
  if (failed) {
    return error(Code::kInvalidArgument,
                 "--ssl-keyfile: want the private key of the certificate in PEM, {}: {}", key,
                 failed.message());
  }
  return context;
}

}  // namespace nibble::server
