// Chooses the next token of a sequence from its row of logits.
#pragma once

#include <span>
#include <vector>

#include "engine/sequence.h"
#include "nibble/status.h"

namespace nibble::engine {

class Sampler {
 public:
  explicit Sampler(std::int32_t vocab);

  // Changes `logits` [vocab] in place. kInternal when they hold NaN.
  Result<std::int32_t> next_token(const Sequence& sequence, std::span<float> logits);

 private:
  std::vector<float> scratch_;
  std::vector<std::int32_t> order_;
  std::vector<kernels::LogitBias> bias_;
};

}  // namespace nibble::engine
