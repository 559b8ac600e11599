// Between Boost.Beast's requests and ours.
#pragma once

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <string>

#include "server/asio.h"
#include "server/http.h"

namespace nibble::server {

std::string lower(boost::beast::string_view text);

// The HTTP status that a fault of the parser deserves.
int status_of(const ErrorCode& fault);

HttpRequest plain(boost::beast::http::request<boost::beast::http::string_body>&& from);

}  // namespace nibble::server
