// The body of a call as JSON.
#pragma once

#include <optional>

#include "server/handlers.h"
#include "server/json.h"

namespace nibble::server {

// The object in the body. Where there is none, nothing, and the refusal is sent as `refusal` writes
// it.
std::optional<Json> body_of(const Call& call, HttpReply (*refusal)(const ApiError&) = &error_reply);

}  // namespace nibble::server
