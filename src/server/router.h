// From a path to its handler, and what holds for all of them: keys, origins, ids, readiness.
#pragma once

#include <string_view>

#include "server/api_context.h"
#include "server/http.h"

namespace nibble::server {

// The whole API as one handler. `context` must outlive it.
Handler make_api(ApiContext& context);

// Takes as long for a wrong key as for the right one.
bool is_same_key(std::string_view given, std::string_view key);

}  // namespace nibble::server
