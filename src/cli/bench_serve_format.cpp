#include "cli/bench_serve_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace nibble::cli {
namespace {

using Json = nlohmann::ordered_json;
using client::LoadReport;
using client::RequestRecord;
using client::Summary;

struct Metric {
  const char* name;  // in flags and fields
  const char* title;
  const char* heading;
  Summary LoadReport::*summary;
};
constexpr Metric kMetrics[] = {
    {"ttft", "TTFT", "Time to First Token", &LoadReport::ttft},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &LoadReport::tpot},
    {"itl", "ITL", "Inter-token Latency", &LoadReport::itl},
    {"e2el", "E2EL", "End-to-end Latency", &LoadReport::e2el},
};

bool is_reported(const ServeRun& run, const Metric& metric) {
  return std::find(run.metrics.begin(), run.metrics.end(), metric.name) != run.metrics.end();
}

std::string line(const std::string& label, double value) {
  return fmt::format("{:<40} {:<10.2f}\n", label, value);
}

std::string line(const std::string& label, std::int64_t value) {
  return fmt::format("{:<40} {:<10}\n", label, value);
}

// 99 and 99.9, as they were asked for.
std::string percentile_name(double p) { return fmt::format("{}", p); }

std::string metric_text(const Metric& metric, const Summary& summary) {
  const std::string unit = fmt::format("{} (ms):", metric.title);
  std::string text = fmt::format("{:-^50}\n", metric.heading);
  text += line("Mean " + unit, summary.mean_ms);
  text += line("Median " + unit, summary.median_ms);
  for (const auto& [p, value] : summary.percentiles_ms) {
    text += line(fmt::format("P{} {}", percentile_name(p), unit), value);
  }
  return text;
}

// Numbers as Python prints them: "4.0", not "4".
std::string rate_text(double rate) {
  if (std::isinf(rate)) {
    return "inf";
  }
  const std::string text = fmt::format("{}", rate);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

template <typename Value>
Json list_of(const std::vector<RequestRecord>& records, Value RequestRecord::*member) {
  Json list = Json::array();
  for (const RequestRecord& record : records) {
    list.push_back(record.*member);
  }
  return list;
}

void add_details(Json& json, const std::vector<RequestRecord>& records) {
  json["input_lens"] = list_of(records, &RequestRecord::input_len);
  json["output_lens"] = list_of(records, &RequestRecord::output_len);
  json["start_times"] = list_of(records, &RequestRecord::start);
  json["ttfts"] = list_of(records, &RequestRecord::ttft);
  json["itls"] = list_of(records, &RequestRecord::itls);
  json["latencies"] = list_of(records, &RequestRecord::latency);
  json["generated_texts"] = list_of(records, &RequestRecord::text);
  json["errors"] = list_of(records, &RequestRecord::error);
}

void add_report(Json& json, const ServeRun& run, const LoadReport& report) {
  json["duration"] = report.duration_s;
  json["completed"] = report.completed;
  json["failed"] = report.failed;
  json["total_input_tokens"] = report.total_input_tokens;
  json["total_output_tokens"] = report.total_output_tokens;
  json["request_throughput"] = report.request_throughput;
  json["request_goodput"] = run.has_goodput ? Json(report.request_goodput) : Json(nullptr);
  json["output_throughput"] = report.output_throughput;
  json["total_token_throughput"] = report.total_token_throughput;
  json["max_output_tokens_per_s"] = report.max_output_tokens_per_s;
  json["max_concurrent_requests"] = report.max_concurrent_requests;
  for (const Metric& metric : kMetrics) {
    if (!is_reported(run, metric)) {
      continue;
    }
    const Summary& summary = report.*metric.summary;
    json[fmt::format("mean_{}_ms", metric.name)] = summary.mean_ms;
    json[fmt::format("median_{}_ms", metric.name)] = summary.median_ms;
    json[fmt::format("std_{}_ms", metric.name)] = summary.std_ms;
    for (const auto& [p, value] : summary.percentiles_ms) {
      json[fmt::format("p{}_{}_ms", percentile_name(p), metric.name)] = value;
    }
  }
}

}  // namespace

std::string serve_text(const ServeRun& run, const LoadReport& report) {
  std::string text = fmt::format("{:=^50}\n", " Serving Benchmark Result ");
  text += line("Successful requests:", std::int64_t{report.completed});
  text += line("Failed requests:", std::int64_t{report.failed});
  if (run.max_concurrency > 0) {
    text += line("Maximum request concurrency:", std::int64_t{run.max_concurrency});
  }
  if (!std::isinf(run.request_rate)) {
    text += line("Request rate configured (RPS):", run.request_rate);
  }
  text += line("Benchmark duration (s):", report.duration_s);
  text += line("Total input tokens:", report.total_input_tokens);
  text += line("Total generated tokens:", report.total_output_tokens);
  text += line("Request throughput (req/s):", report.request_throughput);
  if (run.has_goodput) {
    text += line("Request goodput (req/s):", report.request_goodput);
  }
  text += line("Output token throughput (tok/s):", report.output_throughput);
  text += line("Peak output token throughput (tok/s):", report.max_output_tokens_per_s);
  text += line("Peak concurrent requests:", static_cast<double>(report.max_concurrent_requests));
  text += line("Total token throughput (tok/s):", report.total_token_throughput);
  for (const Metric& metric : kMetrics) {
    if (is_reported(run, metric)) {
      text += metric_text(metric, report.*metric.summary);
    }
  }
  return text + std::string(50, '=') + "\n";
}

std::string errors_text(const std::vector<RequestRecord>& records) {
  std::map<std::string, int> counts;
  for (const RequestRecord& record : records) {
    if (!record.is_success) {
      ++counts[record.error];
    }
  }
  std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text = sorted.empty() ? "" : "Failed requests by error:\n";
  for (const auto& [message, count] : sorted) {
    text += fmt::format("{:>8} {}\n", count, message);
  }
  return text;
}

std::string serve_json(const ServeRun& run, const LoadReport& report,
                       const std::vector<RequestRecord>& records, bool is_detailed) {
  Json json = {{"date", run.date},
               {"endpoint_type", run.backend},
               {"backend", run.backend},
               {"label", run.label.empty() ? Json(nullptr) : Json(run.label)},
               {"model_id", run.model},
               {"tokenizer_id", run.tokenizer.empty() ? Json(nullptr) : Json(run.tokenizer)},
               {"num_prompts", run.num_prompts}};
  for (const auto& [name, value] : run.metadata) {
    json[name] = value;
  }
  json["request_rate"] = std::isinf(run.request_rate) ? Json("inf") : Json(run.request_rate);
  json["burstiness"] = std::isinf(run.burstiness) ? Json("inf") : Json(run.burstiness);
  json["max_concurrency"] = run.max_concurrency > 0 ? Json(run.max_concurrency) : Json(nullptr);
  add_report(json, run, report);
  if (is_detailed) {
    add_details(json, records);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string result_filename(const ServeRun& run) {
  const std::string concurrency =
      run.max_concurrency > 0 ? fmt::format("-concurrency{}", run.max_concurrency) : "";
  return fmt::format("{}-{}qps{}-{}-{}.json", run.label.empty() ? run.backend : run.label,
                     rate_text(run.request_rate), concurrency,
                     run.model.substr(run.model.rfind('/') + 1), run.date);
}

}  // namespace nibble::cli
