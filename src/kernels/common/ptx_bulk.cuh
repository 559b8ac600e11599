// The bulk copy engine: contiguous bytes from global to shared memory, counted by an mbarrier.
#pragma once

#include <cstdint>

#include "kernels/common/ptx_tma.cuh"

namespace nibble::kernels::device {

// As so many arrivals at once.
__device__ __forceinline__ void mbarrier_arrive_many(std::uint64_t* barrier,
                                                     std::uint32_t arrivals) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

// Cache policy of what is read once: leaves L2 before anything else.
__device__ __forceinline__ std::uint64_t createpolicy_evict_first() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// `to`, `from` and `bytes` are multiples of 16. The barrier's phase ends when the bytes are there.
__device__ __forceinline__ void cp_async_bulk(void* to, const void* from, std::uint32_t bytes,
                                              std::uint64_t* barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// Brings what will be read later into L2; `from` and `bytes` are multiples of 16.
__device__ __forceinline__ void cp_async_bulk_prefetch_l2(const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

}  // namespace nibble::kernels::device
