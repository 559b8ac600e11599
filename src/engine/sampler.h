// Chooses the next token of a sequence from its row of logits.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "nibble/status.h"

namespace nibble::engine {

// What token masks have cost so far, in the masks' own code and in applying them.
struct MaskCost {
  std::int64_t num_tokens = 0;  // chosen under a mask
  std::chrono::nanoseconds time{0};
};

class Sampler {
 public:
  explicit Sampler(std::int32_t vocab);

  // Changes `logits` [vocab] in place and tells the sequence's mask what was chosen. kInternal when
  // the row holds NaN (masked or not), or when nothing is allowed that has a probability.
  Result<std::int32_t> next_token(const Sequence& sequence, std::span<float> logits);

  const MaskCost& mask_cost() const { return mask_cost_; }

 private:
  // Sets what the mask forbids to -inf. False when it leaves stop ids only.
  Result<bool> apply_mask(const Sequence& sequence, std::span<float> logits);
  Result<std::int32_t> draw(const Sequence& sequence, std::span<float> logits, bool holds_stops);

  std::vector<float> scratch_;
  std::vector<std::int32_t> order_;
  std::vector<kernels::LogitBias> bias_;
  std::vector<std::uint32_t> mask_;  // bits by id
  MaskCost mask_cost_;
};

}  // namespace nibble::engine
