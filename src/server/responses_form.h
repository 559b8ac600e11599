// How /v1/responses writes answers: items, each with its events.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/generation_job.h"

namespace nibble::server {

struct ResponsesOptions {
  Json echoed;  // fields of the request that the response repeats
  std::string id;
  std::int64_t created_at = 0;
  bool wants_receipt = false;
  std::string request_id;
  // The response and the model's turn, once it is complete.
  std::function<void(const Json& response, const std::vector<ChatMessage>& turn)> when_done;
};

std::unique_ptr<AnswerForm> make_responses_form(ResponsesOptions options);

// The response before its first item.
Json empty_response(const ResponsesOptions& options);

}  // namespace nibble::server
