// Random numbers by counter, the same on a host and a device.
#pragma once

#include <array>
#include <cstdint>

namespace nibble::kernels {

// Philox-4x32-10 (Salmon et al., 2011), constants and rounds as published: four random words from a
// key and a 128-bit counter.
constexpr std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t low,
                                              std::uint64_t high) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53U;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57U;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32U);
  auto c0 = static_cast<std::uint32_t>(low);
  auto c1 = static_cast<std::uint32_t>(low >> 32U);
  auto c2 = static_cast<std::uint32_t>(high);
  auto c3 = static_cast<std::uint32_t>(high >> 32U);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * c0;
    const std::uint64_t product1 = kMultiplier1 * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32U) ^ c1 ^ key0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32U) ^ c3 ^ key1;
    c3 = static_cast<std::uint32_t>(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return {c0, c1, c2, c3};
}

// Uniform in [0, 1), 24 bits, from (seed, counter).
constexpr float uniform(std::uint64_t seed, std::uint64_t counter) {
  return static_cast<float>(philox(seed, counter, 0)[0] >> 8U) * 0x1p-24F;
}

}  // namespace nibble::kernels
