#include "server/api_error.h"

#include <algorithm>
#include <utility>

#include "server/json.h"

namespace nibble::server {
namespace {

// "messages[3].content: want ..." is about messages[3].content.
std::string subject_of(const std::string& message) {
  const std::size_t colon = message.find(": ");
  const bool is_name =
      colon != std::string::npos && colon > 0 &&
      std::all_of(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(colon),
                  [](char c) {
                    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
                           c == '[' || c == ']' || c == '.';
                  });
  return is_name ? message.substr(0, colon) : std::string();
}

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

ApiError bad_request(std::string param, std::string message) {
  return {400, std::move(message), "invalid_request_error", std::move(param), ""};
}

ApiError not_found(std::string message) {
  return {404, std::move(message), "invalid_request_error", "", "not_found"};
}

ApiError not_supported(std::string param, std::string message) {
  return {400, std::move(message), "invalid_request_error", std::move(param), "unsupported"};
}

ApiError from_status(const Status& status) {
  const std::string& message = status.message();
  switch (status.code()) {
    case Code::kInvalidArgument: return bad_request(subject_of(message), message);
    case Code::kUnsupported: return {501, message, "invalid_request_error", "", "unsupported"};
    case Code::kNotFound: return not_found(message);
    case Code::kExhausted: return {503, message, "overloaded_error", "", "overloaded"};
    case Code::kCancelled: return {503, message, "unavailable_error", "", "unavailable"};
    case Code::kOk:
    case Code::kCorrupt:
    case Code::kDevice:
    case Code::kInternal: break;
  }
  return {500, message, "server_error", "", std::string(name(status.code()))};
}

std::string error_json(const ApiError& error) {
  return dump({{"error",
                {{"message", error.message},
                 {"type", error.type},
                 {"param", or_null(error.param)},
                 {"code", or_null(error.code)}}}});
}

HttpReply error_reply(const ApiError& error) {
  HttpReply reply{.status = error.status, .body = error_json(error)};
  if (error.status == 503) {
    reply.headers.push_back({"retry-after", "1"});
  }
  if (error.status == 401) {
    reply.headers.push_back({"www-authenticate", "Bearer"});
  }
  return reply;
}

HttpReply unavailable_reply(const std::string& message) {
  return {.status = 503,
          .headers = {{"retry-after", "1"}},
          .body = dump(
              {{"error", {{"code", 503}, {"message", message}, {"type", "unavailable_error"}}}})};
}

}  // namespace nibble::server
