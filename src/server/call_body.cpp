#include "server/call_body.h"

namespace nibble::server {

std::optional<Json> body_of(const Call& call, HttpReply (*refusal)(const ApiError&)) {
  Json body;
  ApiError error;
  if (!parse_body(call.request.body, body, error)) {
    call.exchange->reply(refusal(error));
    return std::nullopt;
  }
  return body;
}

}  // namespace nibble::server
