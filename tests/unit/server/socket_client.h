// A plain socket as a client, and waiting for what other threads bring about.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace nibble::server {

constexpr std::chrono::seconds kLong{60};  // that nothing hangs

class Client {
 public:
  explicit Client(std::int32_t port, int receive_bytes = 0)
      : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{.tv_sec = 60};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (receive_bytes > 0) {
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    }
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the sockets' own interface
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void close() {
    if (socket_ >= 0) {
      ::close(std::exchange(socket_, -1));
    }
  }
  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        return;  // the server may have refused by now
      }
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  // What comes first.
  std::string receive_some() const {
    std::array<char, 4096> piece{};
    const ssize_t got = recv(socket_, piece.data(), piece.size(), 0);
    return {piece.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  }
  // Up to the end of the connection, or to `end`.
  std::string receive(std::string_view end = "") const {
    std::string out;
    char piece[4096];
    while (end.empty() || !out.ends_with(end)) {
      const ssize_t got = recv(socket_, piece, sizeof piece, 0);
      if (got <= 0) {
        break;
      }
      out.append(piece, static_cast<std::size_t>(got));
    }
    return out;
  }

 private:
  int socket_ = -1;
};

// Waits for a condition that other threads bring about.
template <typename Condition>
bool soon(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace nibble::server
