#include "api/prompt_scores.h"

#include <limits>
#include <utility>

#include "engine/token_request.h"

namespace nibble {

PromptScores::PromptScores(std::vector<std::int32_t> ids, std::int32_t num_top)
    : ids_(std::move(ids)), num_top_(num_top) {
  if (!ids_.empty()) {
    tokens_.push_back({.id = ids_[0], .logprob = std::numeric_limits<float>::quiet_NaN()});
  }
}

void PromptScores::take(std::int32_t position, std::span<const float> logits) {
  const auto next = static_cast<std::size_t>(position) + 1;
  if (next >= ids_.size() || !failure_.ok()) {
    return;
  }
  Result<engine::Logprob> logprob = engine::logprob_of(logits, ids_[next], num_top_);
  if (!logprob) {
    failure_ = logprob.error();
    return;
  }
  tokens_.push_back({ids_[next], logprob->logprob, std::move(logprob->top)});
}

Result<std::vector<TokenLogprob>> PromptScores::finish() {
  if (!failure_.ok()) {
    return failure_;
  }
  return std::move(tokens_);
}

}  // namespace nibble
