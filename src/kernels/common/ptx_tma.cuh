// The copy engine: boxes of a tensor from global to shared memory, announced on a barrier.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/common/ptx_mbarrier.cuh"

namespace nibble::kernels::device {

// One arrival, and `bytes` that are still to come in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(std::uint64_t* barrier,
                                                          std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// The box of `map` that begins at column `x` of row `y`; what lies outside of the tensor is zero.
__device__ __forceinline__ void cp_async_bulk_tensor_2d(void* to, const CUtensorMap& map, int x,
                                                        int y, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(x), "r"(y), "r"(shared_address(barrier))
      : "memory");
}

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<std::uint64_t>(&map)) : "memory");
}

}  // namespace nibble::kernels::device
