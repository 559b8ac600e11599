#include "server/page.h"

#include <algorithm>
#include <string>

#include "server/page_files.h"

namespace nibble::server {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// "gzip;q=0.5": allowed unless q is zero.
bool is_allowed_gzip(std::string_view coding) {
  const std::size_t semicolon = std::min(coding.find(';'), coding.size());
  const std::string_view name = trimmed(coding.substr(0, semicolon));
  std::string_view weight = coding.substr(semicolon);
  weight.remove_prefix(std::min(weight.find('=') + 1, weight.size()));
  const bool is_zero = semicolon < coding.size() &&
                       trimmed(weight).find_first_not_of("0.") == std::string_view::npos;
  return (name == "gzip" || name == "*") && !is_zero;
}

HttpReply reply_with(const PageFile& file, const HttpRequest& request) {
  HttpReply reply{.content_type = std::string(file.content_type)};
  for (const PageHeader& header : page_headers()) {
    reply.headers.push_back({std::string(header.name), std::string(header.value)});
  }
  reply.headers.push_back({"etag", std::string(file.etag)});
  reply.headers.push_back({"vary", "accept-encoding"});
  if (request.header("if-none-match").find(file.etag) != std::string_view::npos) {
    reply.status = 304;
    reply.content_type.clear();
  } else if (accepts_gzip(request.header("accept-encoding"))) {
    reply.headers.push_back({"content-encoding", "gzip"});
    reply.body = file.gzip;
  } else {
    reply.body = file.text;
  }
  return reply;
}

}  // namespace

bool accepts_gzip(std::string_view accepted) {
  while (!accepted.empty()) {
    const std::size_t comma = std::min(accepted.find(','), accepted.size());
    if (is_allowed_gzip(accepted.substr(0, comma))) {
      return true;
    }
    accepted.remove_prefix(std::min(comma + 1, accepted.size()));
  }
  return false;
}

bool answer_page(const HttpRequest& request, Exchange& exchange) {
  if (request.method != "GET" && request.method != "HEAD") {
    return false;
  }
  for (const PageFile& file : page_files()) {
    if (request.path == file.path) {
      exchange.reply(reply_with(file, request));
      return true;
    }
  }
  return false;
}

}  // namespace nibble::server
