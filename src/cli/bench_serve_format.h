// What `nibble bench-serve` prints and saves: the block and the JSON of `vllm bench serve`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "client/statistics.h"

namespace nibble::cli {

// How a run was asked for, as far as its results name it.
struct ServeRun {
  std::string date;     // "20261201-063000"
  std::string backend;  // "openai" or "openai-chat"
  std::string label;    // empty: none
  std::string model;
  std::string tokenizer;  // empty: none
  std::int32_t num_prompts = 0;
  std::vector<std::pair<std::string, std::string>> metadata;
  double request_rate = 0.0;  // may be infinite
  double burstiness = 1.0;
  std::int32_t max_concurrency = 0;  // 0: unlimited
  std::vector<std::string> metrics;  // "ttft", "tpot", "itl", "e2el": those to report
  bool has_goodput = false;
};

std::string serve_text(const ServeRun& run, const client::LoadReport& report);

// Different errors with their counts, most frequent first; empty when there are none.
std::string errors_text(const std::vector<client::RequestRecord>& records);

// One object. `is_detailed`: with the values of every request.
std::string serve_json(const ServeRun& run, const client::LoadReport& report,
                       const std::vector<client::RequestRecord>& records, bool is_detailed);

// "openai-4.0qps-concurrency8-NAME-DATE.json", from the label if there is one.
std::string result_filename(const ServeRun& run);

}  // namespace nibble::cli
