#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/rope/rope_store.h"

namespace nibble::kernels {

// float32 where the reference model is float32: the frequencies themselves; the ramp in double.
void yarn_inv_freq(const YarnParams& params, std::int32_t head_dim, float* inv_freq) {
  const double dim = head_dim;
  const auto channel_of = [&](double rotations) {
    return dim * std::log(params.original_max_position / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(params.theta));
  };
  double low = channel_of(params.beta_fast);
  double high = channel_of(params.beta_slow);
  if (params.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) {
    high += 0.001;  // keeps the ramp finite
  }
  for (std::int32_t j = 0; j < head_dim / 2; ++j) {
    const double plain = std::pow(params.theta, -2.0 * j / dim);
    const double ramp = std::clamp((j - low) / (high - low), 0.0, 1.0);
    const double scaled = ramp * plain / params.factor + (1.0 - ramp) * plain;
    inv_freq[j] = static_cast<float>(params.factor > 1.0 ? scaled : plain);
  }
}

float yarn_concentration(const YarnParams& params) {
  return params.factor <= 1.0 ? 1.0F : static_cast<float>(0.1 * std::log(params.factor) + 1.0);
}

}  // namespace nibble::kernels
