#include "cli/bench_serve_flags.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "cli/parse.h"

namespace nibble::cli {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(at + 1);
  }
}

// A positive number or "inf".
Result<double> parse_rate(const char* flag, const std::string& text) {
  if (text == "inf") {
    return std::numeric_limits<double>::infinity();
  }
  const Result<float> rate = parse_real(text, {0, 1e9, true});
  if (!rate) {
    return error(Code::kInvalidArgument, "{}: want a positive number or inf, found '{:.40}'", flag,
                 text);
  }
  return std::stod(text);
}

Result<std::vector<std::pair<std::string, std::string>>> parse_pairs(
    const char* flag, const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& text : texts) {
    const std::size_t at = text.find('=');
    if (at == std::string::npos || at == 0) {
      return error(Code::kInvalidArgument, "{}: want KEY=VALUE, found '{:.40}'", flag, text);
    }
    pairs.emplace_back(text.substr(0, at), text.substr(at + 1));
  }
  return pairs;
}

Result<std::vector<std::string>> parse_metrics(const std::string& text) {
  constexpr std::array<std::string_view, 4> kNames = {"ttft", "tpot", "itl", "e2el"};
  std::vector<std::string> metrics = split(text, ',');
  for (const std::string& metric : metrics) {
    if (std::find(kNames.begin(), kNames.end(), metric) == kNames.end()) {
      return error(Code::kInvalidArgument,
                   "--percentile-metrics: want some of ttft,tpot,itl,e2el, found '{:.40}'", metric);
    }
  }
  return metrics;
}

Result<std::vector<double>> parse_percentiles(const std::string& text) {
  std::vector<double> percentiles;
  for (const std::string& part : split(text, ',')) {
    if (!parse_real(part, {0, 100})) {
      return error(Code::kInvalidArgument,
                   "--metric-percentiles: want numbers from 0 to 100 with commas between, found "
                   "'{:.40}'",
                   part);
    }
    percentiles.push_back(std::stod(part));
  }
  return percentiles;
}

Result<client::Goodput> parse_goodput(const std::vector<std::string>& texts) {
  client::Goodput goodput;
  for (const std::string& text : texts) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const std::string name = text.substr(0, colon);
    const std::string limit = text.substr(std::min(colon + 1, text.size()));
    const bool is_limit = parse_real(limit, {0, 1e9}).has_value();
    std::optional<double>* target = name == "ttft"   ? &goodput.ttft_ms
                                    : name == "tpot" ? &goodput.tpot_ms
                                    : name == "e2el" ? &goodput.e2el_ms
                                                     : nullptr;
    if (!is_limit || target == nullptr) {
      return error(Code::kInvalidArgument,
                   "--goodput: want ttft:MS, tpot:MS or e2el:MS, found '{:.40}'", text);
    }
    *target = std::stod(limit);
  }
  return goodput;
}

Status parse_server(const ServeFlags& flags, client::LoadOptions& load) {
  const Result<client::ServerAddress> address = client::parse_base_url(flags.base_url);
  if (!address) {
    return error(Code::kInvalidArgument, "--base-url: {}", address.error().message());
  }
  load.server = *address;
  load.endpoint = flags.endpoint;
  if (load.endpoint.empty()) {
    load.endpoint = flags.backend == "openai-chat" ? "/v1/chat/completions" : "/v1/completions";
  }
  if (!load.endpoint.starts_with('/')) {
    load.endpoint.insert(0, "/");
  }
  if (!load.endpoint.ends_with("/completions")) {
    return error(Code::kInvalidArgument,
                 "--endpoint: want a path that ends in /completions or /chat/completions, found "
                 "'{:.80}'",
                 flags.endpoint);
  }
  load.shape.is_chat = load.endpoint.ends_with("/chat/completions");
  if (!flags.backend.empty() && load.shape.is_chat != (flags.backend == "openai-chat")) {
    return error(Code::kInvalidArgument, "--backend {}: want the endpoint of that, found '{}'",
                 flags.backend, load.endpoint);
  }
  NIBBLE_ASSIGN_OR_RETURN(const auto headers, parse_pairs("--header", flags.headers));
  if (!flags.api_key.empty()) {
    load.headers.push_back({"Authorization", "Bearer " + flags.api_key});
  }
  for (const auto& [name, value] : headers) {
    load.headers.push_back({name, value});
  }
  if (const Status extra = client::check_extra_body(flags.extra_body); !extra.ok()) {
    return error(Code::kInvalidArgument, "--extra-body: {}", extra.message());
  }
  load.shape.extra_body = flags.extra_body;
  return {};
}

}  // namespace

Result<ServeJob> parse_job(const ServeFlags& flags) {
  ServeJob job;
  NIBBLE_RETURN_IF_ERROR(parse_server(flags, job.load));
  NIBBLE_ASSIGN_OR_RETURN(job.load.request_rate, parse_rate("--request-rate", flags.request_rate));
  NIBBLE_ASSIGN_OR_RETURN(job.load.burstiness, parse_rate("--burstiness", flags.burstiness));
  NIBBLE_ASSIGN_OR_RETURN(job.metrics, parse_metrics(flags.metrics));
  NIBBLE_ASSIGN_OR_RETURN(job.percentiles, parse_percentiles(flags.percentiles));
  NIBBLE_ASSIGN_OR_RETURN(job.goodput, parse_goodput(flags.goodput));
  NIBBLE_ASSIGN_OR_RETURN(job.metadata, parse_pairs("--metadata", flags.metadata));
  job.load.seed = flags.seed.value_or(0);
  job.load.max_concurrency = flags.max_concurrency;
  job.load.num_warmups = flags.num_warmups;
  job.load.timeout_s = flags.timeout_s;
  job.load.shape.ignore_eos = flags.ignores_eos;
  if (flags.dataset == "random" && !flags.dataset_path.empty()) {
    return error(Code::kInvalidArgument,
                 "--dataset-path: want --dataset-name custom or sharegpt with it, found random");
  }
  if (flags.dataset != "random" && flags.dataset_path.empty()) {
    return error(Code::kInvalidArgument, "--dataset-name {}: want --dataset-path FILE, found none",
                 flags.dataset);
  }
  return job;
}

}  // namespace nibble::cli
