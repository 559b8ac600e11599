// How the next token is chosen.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace nibble {

/// Fields left empty take the model's `generation_config.json`, then the values in brackets. The
/// order of the filters and their tie rules are in `docs/sampling.md`.
struct SamplingParams {
  std::optional<float> temperature;                        ///< >= 0 [1]; 0 is greedy
  std::optional<float> top_p;                              ///< (0, 1] [1]
  std::optional<std::int32_t> top_k;                       ///< >= 0 [0: off]
  std::optional<float> min_p;                              ///< [0, 1] [0]
  std::optional<float> repetition_penalty;                 ///< > 0 [1]
  float presence_penalty = 0.0F;                           ///< [-2, 2]
  float frequency_penalty = 0.0F;                          ///< [-2, 2]
  std::vector<std::pair<std::int32_t, float>> logit_bias;  ///< (token id, bias in [-100, 100])
  std::optional<std::uint64_t> seed;  ///< empty: a fresh one, reported in the response
};

}  // namespace nibble
