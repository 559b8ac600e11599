// Token ids for measurements: seeded, so that two runs compute the same.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sample/sample.h"

namespace nibble::commands {

// Enough to not repeat within a usual prompt; used in a circle.
inline std::vector<std::int32_t> random_ids(std::int32_t vocab, std::uint64_t seed) {
  constexpr std::uint64_t kCount = 65536;
  std::vector<std::int32_t> ids;
  ids.reserve(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const std::uint32_t word = kernels::philox(seed, i, 0)[0];
    ids.push_back(static_cast<std::int32_t>(word % static_cast<std::uint32_t>(vocab)));
  }
  return ids;
}

}  // namespace nibble::commands
