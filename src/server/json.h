// JSON of requests and replies. Objects keep the order in which they were written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/api_error.h"

namespace nibble::server {

using Json = nlohmann::ordered_json;

// Bytes that are no UTF-8 become U+FFFD: writing never fails.
std::string dump(const Json& value);

// The object in a body. Refuses what is no JSON, no object, or nested beyond use.
bool parse_body(std::string_view body, Json& out, ApiError& error);

}  // namespace nibble::server
