// What a load run comes to: the numbers of `vllm bench serve`, defined as there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nibble::client {

// One request. Times are seconds; those of a failed one mean nothing.
struct RequestRecord {
  bool is_success = false;
  std::string error;           // why not
  std::int32_t input_len = 0;  // tokens, as the server counts them if it does
  std::int32_t output_len = 0;
  double start = 0.0;        // when it was sent
  double ttft = 0.0;         // from there to the first token
  std::vector<double> itls;  // from token to token; one chunk may hold several tokens
  double latency = 0.0;      // from there to the last chunk of the answer
  std::string text;          // as generated, reasoning included
};

// Percentile `p` of 0..100, linear between the two nearest ranks; 0 for no values.
double percentile(std::vector<double> values, double p);

// Mean, median and deviation (of a population) in milliseconds; all 0 for no values.
struct Summary {
  double mean_ms = 0.0;
  double median_ms = 0.0;
  double std_ms = 0.0;
  std::vector<std::pair<double, double>> percentiles_ms;  // p, value
};
Summary summarise(const std::vector<double>& seconds, const std::vector<double>& percentiles);

// Limits in milliseconds that a good request keeps.
struct Goodput {
  std::optional<double> ttft_ms;
  std::optional<double> tpot_ms;
  std::optional<double> e2el_ms;

  bool is_set() const { return ttft_ms || tpot_ms || e2el_ms; }
};

struct LoadReport {
  double duration_s = 0.0;
  std::int32_t completed = 0;
  std::int32_t failed = 0;
  std::int64_t total_input_tokens = 0;  // of completed requests, as everything below
  std::int64_t total_output_tokens = 0;
  double request_throughput = 0.0;
  double request_goodput = 0.0;
  double output_throughput = 0.0;
  double total_token_throughput = 0.0;
  double max_output_tokens_per_s = 0.0;  // chunks with tokens in the fullest whole second
  std::int32_t max_concurrent_requests = 0;
  Summary ttft;
  Summary tpot;  // (latency - ttft) / (output_len - 1), of requests with two tokens and more
  Summary itl;   // every gap of every request
  Summary e2el;  // latency
};
LoadReport report_of(const std::vector<RequestRecord>& records, double duration_s,
                     const std::vector<double>& percentiles, const Goodput& goodput);

}  // namespace nibble::client
