// Accesses to global memory that other multiprocessors see while both run: past L1, each 32-bit
// word whole, in no order with others.
#pragma once

#include <cstdint>

namespace nibble::kernels::device {

__device__ __forceinline__ std::uint32_t ld_relaxed_u32(const std::uint32_t* from) {
  std::uint32_t out;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(out) : "l"(from) : "memory");
  return out;
}
__device__ __forceinline__ uint2 ld_relaxed_v2(const std::uint32_t* from) {
  uint2 out;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(out.x), "=r"(out.y)
               : "l"(from)
               : "memory");
  return out;
}
__device__ __forceinline__ uint4 ld_relaxed_v4(const std::uint32_t* from) {
  uint4 out;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "l"(from)
               : "memory");
  return out;
}
__device__ __forceinline__ void st_relaxed_u32(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ __forceinline__ void red_relaxed_add_u32(std::uint32_t* to, std::uint32_t value) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

}  // namespace nibble::kernels::device
