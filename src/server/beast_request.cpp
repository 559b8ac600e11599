#include "server/beast_request.h"

#include <algorithm>
#include <boost/beast/http/error.hpp>
#include <cctype>
#include <utility>

namespace nibble::server {

namespace http = boost::beast::http;

std::string lower(boost::beast::string_view text) {
  std::string out(text.data(), text.size());
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

int status_of(const ErrorCode& fault) {
  if (fault == http::error::header_limit) {
    return 431;
  }
  if (fault == http::error::body_limit) {
    return 413;
  }
  return fault == http::error::bad_version ? 505 : 400;
}

HttpRequest plain(http::request<http::string_body>&& from) {
  HttpRequest out;
  out.method.assign(from.method_string().data(), from.method_string().size());
  const std::string target(from.target().data(), from.target().size());
  const std::size_t question = target.find('?');
  out.path = target.substr(0, question);
  out.query = question == std::string::npos ? "" : target.substr(question + 1);
  for (const auto& field : from) {
    out.headers.push_back(
        {lower(field.name_string()), std::string(field.value().data(), field.value().size())});
  }
  out.body = std::move(from.body());
  return out;
}

}  // namespace nibble::server
