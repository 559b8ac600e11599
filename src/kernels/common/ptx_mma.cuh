// Warp-wide matrix instructions and helpers on bf16 pairs.
#pragma once

#include <cstdint>

namespace nibble::kernels::device {

// d += a . b, a 16 x 16, b 16 x 8, fp32 sums.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                                  std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Transposes an 8 x 8 matrix of 16-bit elements held by a warp, row lane / 4, columns
// 2 (lane % 4) and the next.
__device__ __forceinline__ std::uint32_t movmatrix_trans(std::uint32_t rows) {
  std::uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(rows));
  return out;
}

// Products of two pairs; subnormals are kept.
__device__ __forceinline__ std::uint32_t mul_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t out;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}

// (low, high) rounded to nearest even.
__device__ __forceinline__ std::uint32_t cvt_bf16x2(float low, float high) {
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

// 2^x, to two units in the last place; results below 2^-126 are zero.
__device__ __forceinline__ float ex2_approx(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

}  // namespace nibble::kernels::device
