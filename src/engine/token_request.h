// What the engine is asked and what it answers, in token ids.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/token_mask.h"
#include "nibble/status.h"

namespace nibble::engine {

using SequenceId = std::int64_t;

// Every field resolved; ranges as in `nibble::SamplingParams`.
struct SamplingRules {
  float temperature = 1.0F;
  float top_p = 1.0F;
  std::int32_t top_k = 0;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::vector<std::pair<std::int32_t, float>> logit_bias;
  std::uint64_t seed = 0;

  bool has_penalties() const {
    return repetition_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F;
  }
};

struct TokenRequest {
  std::vector<std::int32_t> prompt;  // at least one id
  SamplingRules sampling;
  std::int32_t max_tokens = 0;         // 0: compute the prompt, generate nothing
  std::int32_t min_tokens = 0;         // stop ids are held back before this many
  std::vector<std::int32_t> stop_ids;  // end the answer; reported as its last token
  std::int32_t top_logprobs = -1;      // -1: none; n >= 0: of the token and the n best
  // Called in order for every prompt position with the logits [vocab] that predict the next
  // position. Must not call the engine.
  std::function<void(std::int32_t position, std::span<const float> logits)> on_prompt_logits;
  // Null: every id may come next. Not to be shared by two requests.
  std::shared_ptr<TokenMask> mask;
};

enum class Finish : std::uint8_t { kNone, kStop, kLength, kFailed };

struct Logprob {
  float logprob = 0.0F;                             // of the raw logits, before any penalty
  std::vector<std::pair<std::int32_t, float>> top;  // largest first
};

struct TokenEvent {
  SequenceId sequence = 0;
  std::int32_t token = -1;  // -1: none (prompt done with max_tokens 0, or failed)
  Finish finish = Finish::kNone;
  std::int32_t cached_tokens = 0;  // of the prompt, that were not computed
  std::uint64_t kernels = 0;       // that computed the sequence so far, as the model's bits
  Logprob logprob;                 // when asked for
  Status failure;                  // kFailed
};

// log-softmax of `token` and of the `num_top` largest logits; ties go to the smaller id. kInternal
// on NaN.
Result<Logprob> logprob_of(std::span<const float> logits, std::int32_t token, std::int32_t num_top);

}  // namespace nibble::engine
