// Token counts and log-probabilities as OpenAI's API writes them.
#pragma once

#include <string>
#include <vector>

#include "server/json.h"
#include "server/model_host.h"

namespace nibble::server {

// Of all choices of one prompt: the prompt counts once.
Usage total_usage(const std::vector<Response>& responses);
Json usage_json(const Usage& usage);

// JSON has no infinities: below this, and for NaN, this.
constexpr float kLeastLogprob = -9999.0F;
float finite_logprob(float logprob);

// One element of `logprobs.content`: token, logprob, bytes, top_logprobs.
Json logprob_json(const TokenLogprob& token, const ModelHost& host);

}  // namespace nibble::server
