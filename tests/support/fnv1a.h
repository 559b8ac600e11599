// The FNV-1a hash, for golden values that are too many to store.
#pragma once

#include <cstdint>

namespace nibble {

template <typename Sequence>
std::uint64_t fnv1a(const Sequence& values) {
  std::uint64_t state = 0xCBF29CE484222325U;
  for (const auto value : values) {
    state = (state ^ static_cast<std::uint64_t>(value)) * 0x100000001B3U;
  }
  return state;
}

}  // namespace nibble
