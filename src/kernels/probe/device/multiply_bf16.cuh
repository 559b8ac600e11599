// Matrix products and nothing else; the result depends on every one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/ptx_wgmma.cuh"

namespace nibble::kernels::device {

inline constexpr int kProductGroups = 2;  // warpgroups of a block
inline constexpr int kProductThreads = 128 * kProductGroups;
inline constexpr int kProductCols = 256;
inline constexpr int kProductsOfARound = 64;
inline constexpr int kProductBytes = kProductCols * 128;  // b: rows of 64 bf16
inline constexpr double kProductOperations = 2.0 * 64 * kProductCols * 16;

// Each group multiplies the same operands again and again; `out` gets the bits of one sum.
__global__ void __launch_bounds__(kProductThreads)
    multiply_bf16(const uint4* operands, int rounds, std::uint32_t* out) {
  extern __shared__ __align__(1024) std::byte b[];
  for (int i = static_cast<int>(threadIdx.x); i < kProductBytes / 16; i += kProductThreads) {
    reinterpret_cast<uint4*>(b)[i] = operands[i];
  }
  const uint4 mine = operands[kProductBytes / 16 + threadIdx.x];
  const std::uint32_t a[4] = {mine.x, mine.y, mine.z, mine.w};
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(b));
  float d[kProductCols / 2] = {};
  for (int round = 0; round < rounds; ++round) {
    wgmma_fence();
#pragma unroll 4
    for (std::uint32_t i = 0; i < kProductsOfARound; ++i) {
      Wgmma<kProductCols>::run(d, a, wgmma_descriptor(at + 32 * (i % 4)));
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
  }
  float sum = 0.0F;
  for (const float value : d) {
    sum += value;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *out = __float_as_uint(d[0]);
  } else if (sum == 1.2345e-33F) {  // never: keeps the sums
    out[0] = 0;
  }
}

}  // namespace nibble::kernels::device
