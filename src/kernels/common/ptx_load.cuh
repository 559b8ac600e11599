// Loads from global memory with a cache policy.
#pragma once

#include <cstdint>

namespace nibble::kernels::device {

// Read-only, 16 bytes, not kept in L1: weights that are read once.
__device__ __forceinline__ uint4 ld_global_nc_v4(const void* from) {
  uint4 out;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "l"(from));
  return out;
}

__device__ __forceinline__ std::uint32_t ld_global_nc_u32(const void* from) {
  std::uint32_t out;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(out) : "l"(from));
  return out;
}

// Asks for the line of 128 bytes that holds `from`.
__device__ __forceinline__ void prefetch_l2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

}  // namespace nibble::kernels::device
