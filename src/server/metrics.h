// Counters and histograms of the server, in the text form of Prometheus: vLLM's names and bucket
// edges under the prefix "nibble:".
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/service.h"

namespace nibble::server {

// Any thread may observe.
class Histogram {
 public:
  explicit Histogram(std::vector<double> edges);
  void observe(double value);
  void write(std::string_view name, std::string_view help, std::string_view labels,
             std::string& out) const;

 private:
  std::vector<double> edges_;                            // upper, inclusive, ascending
  std::unique_ptr<std::atomic<std::int64_t>[]> counts_;  // [edges + 1]
  std::atomic<double> sum_{0.0};
};

class Metrics {
 public:
  Metrics(const std::string& model_name, const EngineInfo& engine);

  // In the engine's thread, for each token.
  void on_token(std::int32_t num_generated, double gap_ms);
  // The end of one answer; failed ones have no response.
  void on_end(const Result<Response>& result);
  void on_reply(int status);

  std::string text(const ServiceStats& stats) const;

 private:
  std::string labels_;  // model_name="..."
  std::string activation_;
  Histogram first_token_;
  Histogram between_tokens_;
  Histogram whole_;
  Histogram queue_;
  Histogram prefill_;
  Histogram decode_;
  Histogram inference_;
  Histogram prompt_tokens_;
  Histogram generation_tokens_;
  std::atomic<std::int64_t> stop_{0};
  std::atomic<std::int64_t> length_{0};
  std::atomic<std::int64_t> abort_{0};
  std::atomic<std::int64_t> error_{0};
  std::atomic<std::int64_t> replies_[6] = {};  // by the first digit of the status
};

}  // namespace nibble::server
