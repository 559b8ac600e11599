// How one row of logits is sampled, as plain data that a host and a device read alike.
#pragma once

#include <cstdint>

namespace nibble::kernels {

struct TokenCount {
  std::int32_t id = 0;
  std::int32_t in_output = 0;  // times generated; 0 when only in the prompt
};
struct LogitBias {
  std::int32_t id = 0;
  float bias = 0.0F;
};

// Parameters of one row, in the ranges of SampleArgs. Counts and biases are ranges of the arrays
// that all rows share.
struct SampleRow {
  std::uint64_t seed = 0;
  std::uint64_t counter = 0;
  float temperature = 1.0F;
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::int32_t top_k = 0;
  std::int32_t first_count = 0;
  std::int32_t num_counts = 0;  // distinct ids
  std::int32_t first_bias = 0;
  std::int32_t num_bias = 0;
  std::int32_t reserved = 0;
};

}  // namespace nibble::kernels
