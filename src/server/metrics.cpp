#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace nibble::server {
namespace {

const std::vector<double> kFirstTokenEdges = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                              0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                              20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
const std::vector<double> kBetweenTokensEdges = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                                 0.3,  0.4,   0.5,  0.75,  1.0, 2.5,  5.0,
                                                 7.5,  10.0,  20.0, 40.0,  80.0};
const std::vector<double> kRequestEdges = {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,
                                           5.0,  10.0, 15.0, 20.0, 30.0,  40.0,  50.0,
                                           60.0, 120., 240., 480., 960.0, 1920., 7680.};

// 1, 2, 5, 10, 20, ... up to the limit.
std::vector<double> token_edges(std::int32_t max_model_len) {
  std::vector<double> out;
  for (double decade = 1.0; decade <= max_model_len; decade *= 10.0) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (step * decade <= max_model_len) {
        out.push_back(step * decade);
      }
    }
  }
  return out;
}

std::string escaped(std::string_view label) {
  std::string out;
  for (const char c : label) {
    out += c == '\\' || c == '"' ? std::string{'\\', c} : c == '\n' ? "\\n" : std::string{c};
  }
  return out;
}

// As Python writes it, since labels are compared as text: 1.0, not 1.
std::string edge_text(double edge) {
  const std::string text = fmt::format("{}", edge);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

void write_head(std::string_view name, std::string_view help, const char* type, std::string& out) {
  out += fmt::format("# HELP nibble:{} {}\n# TYPE nibble:{} {}\n", name, help, name, type);
}

}  // namespace

Histogram::Histogram(std::vector<double> edges)
    : edges_(std::move(edges)),
      counts_(std::make_unique<std::atomic<std::int64_t>[]>(edges_.size() + 1)) {}

void Histogram::observe(double value) {
  const auto edge = std::lower_bound(edges_.begin(), edges_.end(), value);
  ++counts_[static_cast<std::size_t>(edge - edges_.begin())];
  double sum = sum_;
  while (!sum_.compare_exchange_weak(sum, sum + value)) {
  }
}

void Histogram::write(std::string_view name, std::string_view help, std::string_view labels,
                      std::string& out) const {
  write_head(name, help, "histogram", out);
  std::int64_t count = 0;
  for (std::size_t i = 0; i <= edges_.size(); ++i) {
    count += counts_[i];
    const std::string edge = i < edges_.size() ? edge_text(edges_[i]) : "+Inf";
    out += fmt::format("nibble:{}_bucket{{le=\"{}\",{}}} {}\n", name, edge, labels, count);
  }
  out += fmt::format("nibble:{}_sum{{{}}} {}\nnibble:{}_count{{{}}} {}\n", name, labels,
                     sum_.load(), name, labels, count);
}

Metrics::Metrics(const std::string& model_name, const EngineInfo& engine)
    : labels_(fmt::format("model_name=\"{}\"", escaped(model_name))),
      activation_(engine.activation),
      first_token_(kFirstTokenEdges),
      between_tokens_(kBetweenTokensEdges),
      whole_(kRequestEdges),
      queue_(kRequestEdges),
      prefill_(kRequestEdges),
      decode_(kRequestEdges),
      inference_(kRequestEdges),
      prompt_tokens_(token_edges(engine.max_model_len)),
      generation_tokens_(token_edges(engine.max_model_len)) {}

void Metrics::on_token(std::int32_t num_generated, double gap_ms) {
  (num_generated == 1 ? first_token_ : between_tokens_).observe(gap_ms / 1e3);
}

void Metrics::on_end(const Result<Response>& result) {
  if (!result) {
    ++error_;
    return;
  }
  switch (result->finish_reason) {
    case FinishReason::kStop:
    case FinishReason::kToolCalls: ++stop_; break;
    case FinishReason::kLength: ++length_; break;
    case FinishReason::kCancelled: ++abort_; return;
  }
  const Timings& timings = result->timings;
  whole_.observe((timings.queue_ms + timings.prefill_ms + timings.decode_ms) / 1e3);
  queue_.observe(timings.queue_ms / 1e3);
  prefill_.observe(timings.prefill_ms / 1e3);
  decode_.observe(timings.decode_ms / 1e3);
  inference_.observe((timings.prefill_ms + timings.decode_ms) / 1e3);
  prompt_tokens_.observe(result->usage.prompt_tokens);
  generation_tokens_.observe(result->usage.completion_tokens);
}

void Metrics::on_reply(int status) {
  ++replies_[static_cast<std::size_t>(std::clamp(status / 100, 0, 5))];
}

std::string Metrics::text(const ServiceStats& stats) const {
  std::string out;
  const auto one = [&](const char* name, const char* help, const char* type, auto value) {
    write_head(name, help, type, out);
    out += fmt::format("nibble:{}{{{}}} {}\n", name, labels_, value);
  };
  const auto share = [](const ServiceStats::Pages& pages) {
    return pages.total == 0 ? 0.0 : static_cast<double>(pages.used) / pages.total;
  };
  write_head("engine_info", "How the model is computed; always 1.", "gauge", out);
  out += fmt::format("nibble:engine_info{{activation=\"{}\",{}}} 1\n", activation_, labels_);
  one("num_requests_running", "Requests that are being computed.", "gauge", stats.running);
  one("num_requests_waiting", "Requests that wait to be computed.", "gauge", stats.waiting);
  one("kv_cache_usage_perc", "Pages of the full layers in use; 1 is all.", "gauge",
      share(stats.full_pages));
  one("kv_cache_window_usage_perc", "Pages of the window layers in use; 1 is all.", "gauge",
      share(stats.window_pages));
  one("num_preemptions_total", "Sequences that gave up their pages and started over.", "counter",
      stats.preemptions);
  one("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", "counter",
      stats.prefix_queried_tokens);
  one("prefix_cache_hits_total", "Prompt tokens found there.", "counter", stats.prefix_hit_tokens);
  one("prompt_tokens_total", "Prompt tokens computed.", "counter", stats.prompt_tokens);
  one("generation_tokens_total", "Tokens generated.", "counter", stats.generation_tokens);
  write_head("request_success_total", "Answers by the reason of their end.", "counter", out);
  for (const auto& [why, count] :
       {std::pair{"stop", stop_.load()}, std::pair{"length", length_.load()},
        std::pair{"abort", abort_.load()}, std::pair{"error", error_.load()}}) {
    out += fmt::format("nibble:request_success_total{{finished_reason=\"{}\",{}}} {}\n", why,
                       labels_, count);
  }
  write_head("http_replies_total", "HTTP replies by class of status.", "counter", out);
  for (int digit = 1; digit < 6; ++digit) {
    out += fmt::format("nibble:http_replies_total{{status=\"{}xx\",{}}} {}\n", digit, labels_,
                       replies_[digit].load());
  }
  first_token_.write("time_to_first_token_seconds", "From submission to the first token.", labels_,
                     out);
  between_tokens_.write("inter_token_latency_seconds", "Between two tokens of one answer.", labels_,
                        out);
  whole_.write("e2e_request_latency_seconds", "From submission to the last token.", labels_, out);
  queue_.write("request_queue_time_seconds", "Waiting to be computed.", labels_, out);
  prefill_.write("request_prefill_time_seconds", "From the start of work to the first token.",
                 labels_, out);
  decode_.write("request_decode_time_seconds", "From the first token to the last.", labels_, out);
  inference_.write("request_inference_time_seconds", "Prefill and decode.", labels_, out);
  prompt_tokens_.write("request_prompt_tokens", "Prompt tokens of a request.", labels_, out);
  generation_tokens_.write("request_generation_tokens", "Tokens generated for a request.", labels_,
                           out);
  return out;
}

}  // namespace nibble::server
