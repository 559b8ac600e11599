// `nibble bench-serve`: loads a server that speaks OpenAI's API, and measures.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "client/http.h"
#include "client/statistics.h"
#include "client/stream_reader.h"
#include "client/workload.h"

namespace nibble::text {
class Tokenizer;
}

namespace nibble::client {

struct LoadOptions {
  ServerAddress server;
  std::string endpoint = "/v1/completions";  // chat if it ends in "chat/completions"
  std::vector<Header> headers;
  RequestShape shape;
  // Requests a second; infinity: all at once. See arrival_times.
  double request_rate = std::numeric_limits<double>::infinity();
  double burstiness = 1.0;
  std::uint64_t seed = 0;
  std::int32_t max_concurrency = 0;  // 0: unlimited
  std::int32_t num_warmups = 0;      // requests before the clock starts, as the first prompt
  double timeout_s = 21600.0;        // of each request
};

struct LoadResult {
  std::vector<RequestRecord> records;  // in the order of the prompts
  double duration_s = 0.0;             // from the first start to the last end
};

// The model that the server lists first.
Result<std::string> model_of_server(const LoadOptions& options);

// Sends every prompt. Failed requests are part of the result; an error is a server without an
// address, or warm-up requests that failed. `tokenizer` counts answers that the server does not
// count; without one, each chunk counts as a token. `on_progress` gets the number of requests that
// ended.
Result<LoadResult> run_load(const LoadOptions& options, const std::vector<Prompt>& prompts,
                            const text::Tokenizer* tokenizer,
                            const std::function<void(std::int32_t)>& on_progress);

}  // namespace nibble::client
