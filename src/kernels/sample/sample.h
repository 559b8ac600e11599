// One token from one row of logits. In order: penalties, logit bias, temperature, top-k, top-p,
// min-p, draw.
//
//   repetition p:   l > 0 ? l / p : l * p        for every token of prompt or output
//   presence a, frequency b:  l - a * [count > 0] - b * count      over output tokens
//   temperature 0:  the largest logit, the smaller id on ties
//   top-k: the k largest (ties at the border: smaller ids); top-p: the shortest prefix of the
//   sorted distribution whose sum reaches p; min-p: probability at least min_p times the largest
//   draw: the first token in id order whose cumulative probability exceeds u * total
//
// u comes from a counter generator of (seed, counter): a token depends on nothing else in the
// batch.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/philox.h"
#include "kernels/common/sample_row.h"
#include "nibble/status.h"

namespace nibble::kernels {

struct SampleArgs {
  std::span<float> logits;             // [vocab], changed in place
  std::span<const TokenCount> counts;  // distinct ids seen
  std::span<const LogitBias> logit_bias;
  float temperature = 1.0F;
  std::int32_t top_k = 0;  // 0: off
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::uint64_t seed = 0;
  std::uint64_t counter = 0;      // index of the token in its answer
  std::span<float> scratch;       // >= vocab floats
  std::span<std::int32_t> order;  // >= vocab ids
};

// kInternal on a NaN or when every logit is -Inf; kInvalidArgument on an id out of range.
Result<std::int32_t> sample(const SampleArgs& args);

// Log-softmax in double: returns log-sum-exp of the row; logprob of i is logits[i] - that.
// kInternal on NaN, on +Inf and when every logit is -Inf.
Result<double> log_sum_exp(std::span<const float> logits);

}  // namespace nibble::kernels
