// What a response of /v1/responses repeats of its request.
#pragma once

#include <string>

#include "nibble/request.h"
#include "server/json.h"

namespace nibble::server {

// As the request was understood: with every field that OpenAI's types want, given or not. Null: the
// model's own. `body` was checked, `prompt` was read from it.
Json echoed(const Json& body, const ChatPrompt& prompt, const std::string& model);

}  // namespace nibble::server
