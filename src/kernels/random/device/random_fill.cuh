// A grid that strides over the words of the range.
#pragma once

#include <cstdint>

#include "kernels/common/random_bits.h"

namespace nibble::kernels::device {

inline constexpr int kRandomThreads = 256;
inline constexpr int kQuantiles = 4096;

struct RandomFill {
  std::uint64_t* out = nullptr;
  std::int64_t bytes = 0;
  std::uint64_t first_word = 0;
  std::uint64_t key = 0;
  std::uint8_t middle_scale = 0;
};
// Travels with the launch, so that it needs no memory of the device.
struct Quantiles {
  std::uint16_t bf16[kQuantiles];
};

// What is left of `bytes` may end within the last word.
__device__ inline void store_word(const RandomFill& args, std::int64_t index, std::uint64_t word) {
  if (args.bytes - 8 * index >= 8) {
    args.out[index] = word;
    return;
  }
  auto* tail = reinterpret_cast<std::uint8_t*>(args.out + index);
  for (std::int64_t i = 0; i < args.bytes - 8 * index; ++i) {
    tail[i] = static_cast<std::uint8_t>(word >> (8 * i));
  }
}

template <typename Map>
__device__ inline void for_each_word(const RandomFill& args, Map&& map) {
  const std::int64_t count = (args.bytes + 7) / 8;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kRandomThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kRandomThreads) {
    store_word(args, i, map(random_word(args.key, args.first_word + i)));
  }
}

__global__ void __launch_bounds__(kRandomThreads)
    random_bytes(const __grid_constant__ RandomFill args) {
  for_each_word(args, [](std::uint64_t word) { return word; });
}

__global__ void __launch_bounds__(kRandomThreads)
    random_scale_bytes(const __grid_constant__ RandomFill args) {
  for_each_word(args, [&](std::uint64_t word) { return random_scales(word, args.middle_scale); });
}

__global__ void __launch_bounds__(kRandomThreads)
    random_bf16(const __grid_constant__ RandomFill args, const __grid_constant__ Quantiles table) {
  __shared__ std::uint16_t quantiles[kQuantiles];
  for (int i = static_cast<int>(threadIdx.x); i < kQuantiles; i += kRandomThreads) {
    quantiles[i] = table.bf16[i];
  }
  __syncthreads();
  for_each_word(args, [&](std::uint64_t word) {
    std::uint64_t four = 0;
    for (std::uint32_t lane = 0; lane < 64; lane += 16) {
      four |= std::uint64_t{quantiles[word >> lane & (kQuantiles - 1)]} << lane;
    }
    return four;
  });
}

}  // namespace nibble::kernels::device
