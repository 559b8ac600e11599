// Bytes of one connection: plain or through TLS, over TCP or a Unix socket.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "nibble/status.h"
#include "server/asio.h"

namespace boost::asio::ssl {
class context;
}

namespace nibble::server {

using Socket = asio::generic::stream_protocol::socket;

class Wire {
 public:
  virtual ~Wire() = default;
  virtual asio::awaitable<void> handshake(ErrorCode& error) = 0;
  // One read and one write may be under way at a time.
  virtual asio::awaitable<std::size_t> read_some(asio::mutable_buffer into, ErrorCode& error) = 0;
  virtual asio::awaitable<std::size_t> write_some(asio::const_buffer from, ErrorCode& error) = 0;
  // What the system takes at once, when no write is under way: 0 when it takes nothing, or only
  // after more than copying. Failures are left to the next write.
  virtual std::size_t try_write(std::string_view bytes) = 0;
  // The end of what is sent; the other direction stays open.
  virtual asio::awaitable<void> shutdown_send() = 0;
  // At once; what is under way ends with an error.
  virtual void close() = 0;
};

std::unique_ptr<Wire> make_plain_wire(Socket socket);
std::unique_ptr<Wire> make_tls_wire(Socket socket, asio::ssl::context& context);

// Certificate and key in PEM. kInvalidArgument names the file that cannot be used.
Result<std::shared_ptr<asio::ssl::context>> make_tls_context(const std::string& certificate,
                                                             const std::string& key);

}  // namespace nibble::server
