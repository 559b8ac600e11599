// The flags of `nibble bench-serve`, as typed and as checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/load.h"
#include "nibble/status.h"

namespace nibble::cli {

struct ServeFlags {
  std::string base_url = "http://127.0.0.1:8000";
  std::string model;
  std::string backend;   // empty: what the endpoint is
  std::string endpoint;  // empty: that of the backend
  std::string tokenizer;
  std::vector<std::string> headers;
  std::string api_key;
  std::string extra_body;
  std::string dataset = "random";
  std::string dataset_path;
  client::RandomShape random;
  std::optional<float> range_ratio;
  std::int32_t custom_output_len = 256;
  std::int32_t sharegpt_output_len = 0;
  std::int32_t num_prompts = 1000;
  std::int32_t max_concurrency = 0;
  std::string request_rate = "inf";
  std::string burstiness = "1";
  bool ignores_eos = false;
  std::optional<std::uint64_t> seed;
  std::int32_t num_warmups = 0;
  std::int32_t timeout_s = 21600;
  std::string metrics = "ttft,tpot,itl";
  std::string percentiles = "99";
  std::vector<std::string> goodput;
  bool saves_result = false;
  bool saves_details = false;
  std::string result_dir;
  std::string result_filename;
  std::string label;
  std::vector<std::string> metadata;
};

// What the flags mean, each checked.
struct ServeJob {
  client::LoadOptions load;
  std::vector<std::string> metrics;
  std::vector<double> percentiles;
  client::Goodput goodput;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// kInvalidArgument names the flag. The model is left to the caller.
Result<ServeJob> parse_job(const ServeFlags& flags);

}  // namespace nibble::cli
