// What a request took: in its line of the log, and on request in the reply.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nibble/request.h"
#include "server/json.h"

namespace nibble::server {

// {"request_id", "choices": [{times, tokens, end, seed and the kernels that ran}, ...]}
Json receipt_json(const std::string& request_id, const std::vector<Response>& responses);

// The answers of one request together.
struct ReceiptSum {
  Usage usage;              // the longest prompt, the sum of what was generated
  Timings timings;          // the longest of each
  std::string finish;       // "stop,length"
  std::uint64_t seed = 0;   // of the first answer
  std::string kernel_path;  // of all, separated by commas
};
// Of those answers that there are.
ReceiptSum receipt_sum(const std::vector<std::optional<Response>>& responses);

}  // namespace nibble::server
