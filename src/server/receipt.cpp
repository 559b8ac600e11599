#include "server/receipt.h"

#include <fmt/format.h>

#include <algorithm>

namespace nibble::server {
namespace {

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kToolCalls: return "tool_calls";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "stop";
}

// Appends what is not there yet.
void add_kernels(const Response& response, std::vector<std::string>& kernels) {
  for (const std::string& kernel : response.kernels) {
    if (std::find(kernels.begin(), kernels.end(), kernel) == kernels.end()) {
      kernels.push_back(kernel);
    }
  }
}

}  // namespace

Json receipt_json(const std::string& request_id, const std::vector<Response>& responses) {
  Json choices = Json::array();
  for (const Response& response : responses) {
    choices.push_back({{"queue_ms", response.timings.queue_ms},
                       {"prefill_ms", response.timings.prefill_ms},
                       {"decode_ms", response.timings.decode_ms},
                       {"prompt_tokens", response.usage.prompt_tokens},
                       {"cached_tokens", response.usage.cached_tokens},
                       {"completion_tokens", response.usage.completion_tokens},
                       {"finish_reason", name_of(response.finish_reason)},
                       {"stop_string", response.stop_string},
                       {"seed", response.seed},
                       {"kernel_path", response.kernels}});
  }
  return {{"request_id", request_id}, {"choices", choices}};
}

ReceiptSum receipt_sum(const std::vector<std::optional<Response>>& responses) {
  ReceiptSum out;
  std::vector<std::string> kernels;
  for (const auto& response : responses) {
    if (!response.has_value()) {
      continue;
    }
    const Usage& usage = response->usage;
    const Timings& timings = response->timings;
    out.usage.prompt_tokens = std::max(out.usage.prompt_tokens, usage.prompt_tokens);
    out.usage.cached_tokens = std::max(out.usage.cached_tokens, usage.cached_tokens);
    out.usage.completion_tokens += usage.completion_tokens;
    out.timings.queue_ms = std::max(out.timings.queue_ms, timings.queue_ms);
    out.timings.prefill_ms = std::max(out.timings.prefill_ms, timings.prefill_ms);
    out.timings.decode_ms = std::max(out.timings.decode_ms, timings.decode_ms);
    out.finish += (out.finish.empty() ? "" : ",") + std::string(name_of(response->finish_reason));
    add_kernels(*response, kernels);
  }
  out.seed = responses.front().has_value() ? responses.front()->seed : 0;
  out.kernel_path = fmt::format("{}", fmt::join(kernels, ","));
  return out;
}

}  // namespace nibble::server
