// The parts of Asio that the transport uses. Only wire, connection and listener include it.
#pragma once

// Before Boost 1.74's awaitable.hpp, which uses std::exchange without it.
// clang-format off
#include <utility>
// clang-format on

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace nibble::server {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

}  // namespace nibble::server
