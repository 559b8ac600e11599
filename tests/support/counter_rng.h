// Random numbers of (seed, index): any element can be drawn by itself, in any order, on any
// machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "kernels/sample/sample.h"

namespace nibble::testing_support {

class CounterRng {
 public:
  explicit CounterRng(std::uint64_t seed) : seed_(seed) {}

  std::uint32_t word(std::uint64_t index) const { return kernels::philox(seed_, index, 1)[0]; }
  std::int32_t below(std::uint64_t index, std::int32_t limit) const {
    return static_cast<std::int32_t>(word(index) % static_cast<std::uint32_t>(limit));
  }
  // Normal with mean 0 and deviation 1 (Box and Muller).
  float normal(std::uint64_t index) const {
    const auto words = kernels::philox(seed_, index, 2);
    const double radius = std::sqrt(-2.0 * std::log((words[0] + 1.0) * 0x1p-32));
    return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * words[1] * 0x1p-32));
  }
  std::vector<float> normals(std::int64_t count, float deviation = 1.0F) const {
    std::vector<float> out;
    for (std::int64_t i = 0; i < count; ++i) {
      out.push_back(deviation * normal(static_cast<std::uint64_t>(i)));
    }
    return out;
  }

 private:
  std::uint64_t seed_;
};

}  // namespace nibble::testing_support
