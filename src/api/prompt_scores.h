// Log-probabilities of a prompt's own tokens, collected while it is computed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nibble/request.h"
#include "nibble/status.h"

namespace nibble {

class PromptScores {
 public:
  // `num_top`: also so many of the best alternatives at each position.
  PromptScores(std::vector<std::int32_t> ids, std::int32_t num_top);

  // For every position in order: the logits that predict the next one. The last one's are not used.
  void take(std::int32_t position, std::span<const float> logits);

  // One for each id; the first has no log-probability (NaN) and no alternatives. kInternal when a
  // row had no distribution. Once.
  Result<std::vector<TokenLogprob>> finish();

 private:
  std::vector<std::int32_t> ids_;
  std::int32_t num_top_ = 0;
  std::vector<TokenLogprob> tokens_;
  Status failure_;
};

}  // namespace nibble
