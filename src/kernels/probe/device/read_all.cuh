// Reads and nothing else; the result depends on every word.
#pragma once

#include <cstdint>

#include "kernels/common/ptx_load.cuh"

namespace nibble::kernels::device {

inline constexpr int kReadThreads = 512;
inline constexpr int kReadUnroll = 8;

// `out` becomes the exclusive or of all words.
__global__ void __launch_bounds__(kReadThreads)
    read_all(const uint4* from, std::int64_t count, std::uint32_t* out) {
  std::uint32_t all = 0;
  const std::int64_t stride = std::int64_t{gridDim.x} * kReadThreads;
  std::int64_t at = std::int64_t{blockIdx.x} * kReadThreads + threadIdx.x;
  for (; at + (kReadUnroll - 1) * stride < count; at += kReadUnroll * stride) {
    uint4 values[kReadUnroll];
#pragma unroll
    for (int i = 0; i < kReadUnroll; ++i) {
      values[i] = ld_global_nc_v4(from + at + i * stride);
    }
#pragma unroll
    for (const uint4& value : values) {
      all ^= value.x ^ value.y ^ value.z ^ value.w;
    }
  }
  for (; at < count; at += stride) {
    const uint4 value = ld_global_nc_v4(from + at);
    all ^= value.x ^ value.y ^ value.z ^ value.w;
  }
  all = __reduce_xor_sync(0xFFFFFFFFU, all);
  if (threadIdx.x % 32 == 0) {
    atomicXor(out, all);
  }
}

}  // namespace nibble::kernels::device
