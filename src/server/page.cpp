#include "server/page.h"

#include <string>

#include "server/content_coding.h"
#include "server/page_files.h"

namespace nibble::server {
namespace {

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
