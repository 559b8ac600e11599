// Device side of formats/e4m3_row.h: eight codes of a row and its scale as bf16, which holds them
// exactly.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "formats/e4m3_row.h"
#include "kernels/common/ptx_mma.cuh"

namespace nibble::kernels::device {

// Two codes, the first in the low byte.
__device__ __forceinline__ float2 cvt_e4m3x2(std::uint32_t pair) {
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;"
      : "=r"(halves)
      : "h"(static_cast<std::uint16_t>(pair & 0xFFFFU)));
  return __half22float2(*reinterpret_cast<const __half2*>(&halves));
}

__device__ __forceinline__ std::uint32_t e4m3x2_to_bf16(std::uint32_t pair, float scale) {
  const float2 values = cvt_e4m3x2(pair);
  return cvt_bf16x2(values.x * scale, values.y * scale);
}

__device__ __forceinline__ uint4 e4m3x8_to_bf16(uint2 codes, float scale) {
  return make_uint4(e4m3x2_to_bf16(codes.x, scale), e4m3x2_to_bf16(codes.x >> 16U, scale),
                    e4m3x2_to_bf16(codes.y, scale), e4m3x2_to_bf16(codes.y >> 16U, scale));
}

}  // namespace nibble::kernels::device
