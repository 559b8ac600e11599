// Asynchronous copies from global to shared memory by single threads.
#pragma once

#include <cstdint>

namespace nibble::kernels::device {

// 16 bytes, past L1.
__device__ __forceinline__ void cp_async_cg_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
// The last 16 - `bytes` of them zeros.
__device__ __forceinline__ void cp_async_cg_16(std::uint32_t to, const void* from,
                                               std::uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}

// 4 bytes.
__device__ __forceinline__ void cp_async_ca_4(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until at most kPending of the latest groups are under way.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace nibble::kernels::device
