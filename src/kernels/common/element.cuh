// Device twin of common/element.h: activations in memory are float32 or bf16.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace nibble::kernels::device {

__device__ __forceinline__ float load_f32(const float* from) { return *from; }
__device__ __forceinline__ float load_f32(const __nv_bfloat16* from) {
  return __bfloat162float(*from);
}

// To nearest even for bf16.
__device__ __forceinline__ void store_f32(float* to, float value) { *to = value; }
__device__ __forceinline__ void store_f32(__nv_bfloat16* to, float value) {
  *to = __float2bfloat16_rn(value);
}

// Two bf16 of one register, widened: exact.
__device__ __forceinline__ float low_bf16(std::uint32_t pair) {
  return __uint_as_float(pair << 16U);
}
__device__ __forceinline__ float high_bf16(std::uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000U);
}

// Sum over the lanes of a warp, the same bits in each.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, offset);
  }
  return value;
}

}  // namespace nibble::kernels::device
