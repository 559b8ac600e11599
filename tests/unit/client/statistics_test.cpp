#include "client/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace nibble::client {
namespace {

// What numpy makes of the same numbers: tools/golden/load_golden.py.
nlohmann::json golden() {
  std::ifstream file(std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/load_statistics.json");
  return nlohmann::json::parse(file);
}

// Sums of up to 1,000 terms in another order: n units in the last place of each term at most.
void expect_close(double found, double want) {
  EXPECT_NEAR(found, want, 1000 * 2.3e-16 * std::max(std::abs(want), 1e-3));
}

RequestRecord record_of(const nlohmann::json& json) {
  RequestRecord record;
  record.is_success = json["is_success"];
  record.input_len = json["input_len"];
  record.output_len = json["output_len"];
  record.start = json["start"];
  record.ttft = json["ttft"];
  record.itls = json["itls"].get<std::vector<double>>();
  record.latency = json["latency"];
  return record;
}

TEST(Percentile, IsNumpys) {
  const nlohmann::json cases = golden()["percentiles"];
  ASSERT_GE(cases.size(), 5U);
  for (const auto& one : cases) {
    const auto values = one["values"].get<std::vector<double>>();
    for (const auto& [p, want] : one["want"].get<std::vector<std::pair<double, double>>>()) {
      expect_close(percentile(values, p), want);
    }
  }
}

TEST(Summary, IsNumpys) {
  const nlohmann::json cases = golden()["percentiles"];
  for (const auto& one : cases) {
    const Summary summary = summarise(one["values"].get<std::vector<double>>(), {});
    expect_close(summary.mean_ms, one["mean_ms"]);
    expect_close(summary.median_ms, one["median_ms"]);
    expect_close(summary.std_ms, one["std_ms"]);
  }
}

TEST(LoadReport, IsThatOfTheReference) {
  const nlohmann::json runs = golden()["runs"];
  ASSERT_GE(runs.size(), 3U);
  for (const auto& run : runs) {
    std::vector<RequestRecord> records;
    for (const auto& record : run["records"]) {
      records.push_back(record_of(record));
    }
    const Goodput goodput{.ttft_ms = run["goodput"]["ttft"],
                          .tpot_ms = run["goodput"]["tpot"],
                          .e2el_ms = run["goodput"]["e2el"]};
    const LoadReport report = report_of(records, run["duration"], {90.0, 99.0}, goodput);
    const nlohmann::json& want = run["want"];
    EXPECT_EQ(report.completed, want["completed"]);
    EXPECT_EQ(report.failed, want["failed"]);
    EXPECT_EQ(report.total_input_tokens, want["total_input_tokens"]);
    EXPECT_EQ(report.total_output_tokens, want["total_output_tokens"]);
    expect_close(report.request_throughput, want["request_throughput"]);
    expect_close(report.request_goodput, want["request_goodput"]);
    expect_close(report.output_throughput, want["output_throughput"]);
    expect_close(report.total_token_throughput, want["total_token_throughput"]);
    EXPECT_EQ(report.max_output_tokens_per_s, want["max_output_tokens_per_s"]);
    EXPECT_EQ(report.max_concurrent_requests, want["max_concurrent_requests"]);
    expect_close(report.tpot.mean_ms, want["mean_tpot_ms"]);
    expect_close(report.itl.percentiles_ms[1].second, want["p99_itl_ms"]);
    expect_close(report.ttft.percentiles_ms[0].second, want["p90_ttft_ms"]);
    expect_close(report.e2el.std_ms, want["std_e2el_ms"]);
  }
}

TEST(LoadReport, OfNothingIsZero) {
  const LoadReport report = report_of({}, 0.0, {99.0}, {});
  EXPECT_EQ(report.completed + report.failed, 0);
  EXPECT_EQ(report.request_throughput, 0.0);
  EXPECT_EQ(report.ttft.percentiles_ms.at(0).second, 0.0);
}

}  // namespace
}  // namespace nibble::client
