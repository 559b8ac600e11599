#include "server/usage.h"

#include <algorithm>
#include <cmath>

namespace nibble::server {
namespace {

Json bytes_json(const std::string& bytes) {
  Json out = Json::array();
  for (const char byte : bytes) {
    out.push_back(static_cast<unsigned char>(byte));
  }
  return out;
}

Json one(std::int32_t id, float logprob, const ModelHost& host) {
  const std::string bytes = host.token_bytes(id);
  return {{"token", bytes}, {"logprob", finite_logprob(logprob)}, {"bytes", bytes_json(bytes)}};
}

}  // namespace

Usage total_usage(const std::vector<Response>& responses) {
  Usage out;
  for (const Response& response : responses) {
    out.prompt_tokens = std::max(out.prompt_tokens, response.usage.prompt_tokens);
    out.cached_tokens = std::max(out.cached_tokens, response.usage.cached_tokens);
    out.completion_tokens += response.usage.completion_tokens;
    out.reasoning_tokens += response.usage.reasoning_tokens;
  }
  return out;
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details",
           {{"cached_tokens", usage.cached_tokens},
            {"cache_write_tokens", 0},
            {"text_tokens", usage.prompt_tokens},
            {"image_tokens", 0},
            {"audio_tokens", 0}}},
          {"completion_tokens_details",
           {{"reasoning_tokens", usage.reasoning_tokens},
            {"text_tokens", usage.completion_tokens},
            {"audio_tokens", 0},
            {"accepted_prediction_tokens", 0},
            {"rejected_prediction_tokens", 0}}}};
}

float finite_logprob(float logprob) {
  return std::isnan(logprob) ? kLeastLogprob : std::max(logprob, kLeastLogprob);
}

Json logprob_json(const TokenLogprob& token, const ModelHost& host) {
  Json out = one(token.id, token.logprob, host);
  out["top_logprobs"] = Json::array();
  for (const auto& [id, logprob] : token.top) {
    out["top_logprobs"].push_back(one(id, logprob, host));
  }
  return out;
}

}  // namespace nibble::server
