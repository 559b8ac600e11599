// The lines of OpenAI's batch files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/http.h"

namespace nibble::server {

// Of the input: {"custom_id", "method", "url", "body"}.
struct BatchLine {
  std::int64_t number = 0;        // from 1
  std::string custom_id;          // empty: the line has none that can be read
  HttpRequest request;            // unless there is a fault
  std::optional<ApiError> fault;  // of the line; faults of its body are the API's to find
};

// Checks everything but the body, of which only "stream" is refused.
BatchLine read_batch_line(std::string_view text, std::int64_t number);

// Of the output: {"id", "custom_id", "response", "error"}, with the newline.
// A request that reached the API: response {"status_code", "request_id", "body"}, whatever it says.
std::string answered_line(const BatchLine& line, const std::string& request_id,
                          const HttpReply& reply);
// A line that did not: error {"code": "invalid_line", "message", "line"}.
std::string refused_line(const BatchLine& line);

// What a line of the output says.
struct BatchRecord {
  std::string custom_id;    // empty: none
  std::int64_t number = 0;  // of a refused line; 0: an answered one
  bool is_failure = false;  // refused, or with a status from 400
};
// Nothing when it is not a line that a batch writes.
std::optional<BatchRecord> read_batch_record(std::string_view text);

}  // namespace nibble::server
