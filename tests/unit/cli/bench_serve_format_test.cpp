#include "cli/bench_serve_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace nibble::cli {
namespace {

client::LoadReport report() {
  client::LoadReport report{.duration_s = 12.345,
                            .completed = 9,
                            .failed = 1,
                            .total_input_tokens = 900,
                            .total_output_tokens = 450,
                            .request_throughput = 0.729,
                            .request_goodput = 0.25,
                            .output_throughput = 36.45,
                            .total_token_throughput = 109.36,
                            .max_output_tokens_per_s = 80,
                            .max_concurrent_requests = 4};
  report.ttft = {1.5, 1.25, 0.5, {{90.0, 2.0}, {99.9, 3.0}}};
  report.e2el = {1000.0, 900.0, 10.0, {{90.0, 1100.0}, {99.9, 1200.0}}};
  return report;
}

const ServeRun kRun = {.date = "20261201-063000",
                       .backend = "openai",
                       .model = "org/name",
                       .num_prompts = 10,
                       .metadata = {{"tp", "2"}},
                       .request_rate = 4.0,
                       .burstiness = 0.5,
                       .max_concurrency = 8,
                       .metrics = {"e2el", "ttft"},
                       .has_goodput = true};

// Labels, widths and order are those of vLLM; every label is followed by blanks up to column 51.
TEST(ServeText, IsTheBlockOfVllm) {
  const std::string want =
      "============ Serving Benchmark Result ============\n"
      "Successful requests:                     9         \n"
      "Failed requests:                         1         \n"
      "Maximum request concurrency:             8         \n"
      "Request rate configured (RPS):           4.00      \n"
      "Benchmark duration (s):                  12.35     \n"
      "Total input tokens:                      900       \n"
      "Total generated tokens:                  450       \n"
      "Request throughput (req/s):              0.73      \n"
      "Request goodput (req/s):                 0.25      \n"
      "Output token throughput (tok/s):         36.45     \n"
      "Peak output token throughput (tok/s):    80.00     \n"
      "Peak concurrent requests:                4.00      \n"
      "Total token throughput (tok/s):          109.36    \n"
      "---------------Time to First Token----------------\n"
      "Mean TTFT (ms):                          1.50      \n"
      "Median TTFT (ms):                        1.25      \n"
      "P90 TTFT (ms):                           2.00      \n"
      "P99.9 TTFT (ms):                         3.00      \n"
      "----------------End-to-end Latency----------------\n"
      "Mean E2EL (ms):                          1000.00   \n"
      "Median E2EL (ms):                        900.00    \n"
      "P90 E2EL (ms):                           1100.00   \n"
      "P99.9 E2EL (ms):                         1200.00   \n"
      "==================================================\n";
  EXPECT_EQ(serve_text(kRun, report()), want);
}

TEST(ServeText, LeavesOutWhatWasNotAsked) {
  ServeRun run = kRun;
  run.request_rate = std::numeric_limits<double>::infinity();
  run.max_concurrency = 0;
  run.has_goodput = false;
  run.metrics = {};
  const std::string text = serve_text(run, report());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 12);
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("RPS")));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("concurrency:")));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("goodput")));
}

TEST(ServeJson, HasTheFieldsOfVllm) {
  client::RequestRecord record;
  record.error = "why";
  const auto json = nlohmann::json::parse(serve_json(kRun, report(), {record}, true));
  EXPECT_EQ(json, nlohmann::json::parse(R"({
    "date":"20261201-063000","endpoint_type":"openai","backend":"openai","label":null,
    "model_id":"org/name","tokenizer_id":null,"num_prompts":10,"tp":"2","request_rate":4.0,
    "burstiness":0.5,"max_concurrency":8,"duration":12.345,"completed":9,"failed":1,
    "total_input_tokens":900,"total_output_tokens":450,"request_throughput":0.729,
    "request_goodput":0.25,"output_throughput":36.45,"total_token_throughput":109.36,
    "max_output_tokens_per_s":80.0,"max_concurrent_requests":4,
    "mean_ttft_ms":1.5,"median_ttft_ms":1.25,"std_ttft_ms":0.5,"p90_ttft_ms":2.0,"p99.9_ttft_ms":3.0,
    "mean_e2el_ms":1000.0,"median_e2el_ms":900.0,"std_e2el_ms":10.0,"p90_e2el_ms":1100.0,
    "p99.9_e2el_ms":1200.0,"input_lens":[0],"output_lens":[0],"start_times":[0.0],"ttfts":[0.0],
    "itls":[[]],"latencies":[0.0],"generated_texts":[""],"errors":["why"]})"));
  ServeRun run = kRun;
  run.request_rate = std::numeric_limits<double>::infinity();
  run.max_concurrency = 0;
  run.has_goodput = false;
  const auto plain = nlohmann::json::parse(serve_json(run, report(), {record}, false));
  EXPECT_EQ(plain["request_rate"], "inf");
  EXPECT_TRUE(plain["max_concurrency"].is_null());
  EXPECT_TRUE(plain["request_goodput"].is_null());
  EXPECT_FALSE(plain.contains("errors"));
}

TEST(ResultFilename, SaysWhatWasRun) {
  EXPECT_EQ(result_filename(kRun), "openai-4.0qps-concurrency8-name-20261201-063000.json");
  ServeRun run = kRun;
  run.label = "before";
  run.request_rate = std::numeric_limits<double>::infinity();
  run.max_concurrency = 0;
  EXPECT_EQ(result_filename(run), "before-infqps-name-20261201-063000.json");
  run.request_rate = 0.25;
  EXPECT_EQ(result_filename(run), "before-0.25qps-name-20261201-063000.json");
}

TEST(ErrorsText, CountsEqualErrors) {
  std::vector<client::RequestRecord> records(5);
  records[0].error = "b";
  records[1].error = records[3].error = records[4].error = "a";
  records[2].is_success = true;
  EXPECT_EQ(errors_text(records), "Failed requests by error:\n       3 a\n       1 b\n");
  EXPECT_EQ(errors_text({records[2]}), "");
}

}  // namespace
}  // namespace nibble::cli
