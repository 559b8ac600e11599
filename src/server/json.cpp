#include "server/json.h"

#include <fmt/format.h>

#include <algorithm>

namespace nibble::server {
namespace {

// Deeper than any schema; far from what recursion over values could not take.
constexpr int kMostNested = 200;

int depth_of(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool is_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_string) {
      i += c == '\\' ? 1 : 0;
      is_string = c != '"';
    } else if (c == '"') {
      is_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool parse_body(std::string_view body, Json& out, ApiError& error) {
  const int depth = depth_of(body);
  if (depth > kMostNested) {
    error = bad_request("", fmt::format("the body: want at most {} levels of nesting, found {}",
                                        kMostNested, depth));
    return false;
  }
  out = Json::parse(body.begin(), body.end(), nullptr, false);
  if (!out.is_object()) {
    error = bad_request(
        "", fmt::format("the body: want a JSON object, found {}",
                        out.is_discarded() ? fmt::format("{} bytes that are no JSON", body.size())
                                           : std::string(out.type_name())));
    return false;
  }
  return true;
}

}  // namespace nibble::server
