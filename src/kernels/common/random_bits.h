// Random words by place: a function of a key and a counter alone, the same on a host and a device.
#pragma once

#include <cstdint>

namespace nibble::kernels {

// splitmix64's output function.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

// Word `counter` of the sequence of `key`: splitmix64 seeded with `key` gives words 1, 2, 3, ...
constexpr std::uint64_t random_word(std::uint64_t key, std::uint64_t counter) {
  return mix_bits(key + counter * 0x9E3779B97F4A7C15ULL);
}

// Eight scale bytes of a word: `middle` and its two neighbours, nearly evenly.
constexpr std::uint64_t random_scales(std::uint64_t word, std::uint8_t middle) {
  std::uint64_t out = 0;
  for (std::uint32_t lane = 0; lane < 64; lane += 8) {
    const std::uint64_t third = (word >> lane & 0xFFU) * 3 >> 8U;  // 0, 1 or 2
    out |= ((middle + third - 1) & 0xFFU) << lane;
  }
  return out;
}

}  // namespace nibble::kernels
