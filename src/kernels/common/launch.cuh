// Typed launches: the only place where kernels are started.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "nibble/status.h"
#include "tensor/cuda_status.cuh"
#include "tensor/exec.h"

namespace nibble::kernels {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  // The kernel may start before the one before it on the stream has ended. It must call
  // device::griddepcontrol_wait() before it touches anything that another kernel writes.
  bool is_dependent = false;
  // Blocks wait for each other: all of them are resident, or the launch fails.
  bool is_cooperative = false;
};

// Enqueues kernel(args...). A grid with an empty side is no work. `name` is for the error text.
template <typename... Params, typename... Args>
Status launch(const char* name, void (*kernel)(Params...), const LaunchShape& shape,
              const Exec& exec, Args&&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) {
    return {};
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (shape.is_dependent) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.is_cooperative) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = exec.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cuda_status(cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...),
                     name);
}

// A block gets more than 48 KiB of shared memory only after this. Once for each kernel.
template <typename... Params>
Status allow_shared_bytes(const char* name, void (*kernel)(Params...), std::size_t bytes) {
  return cuda_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(bytes)),
                     name);
}

constexpr std::uint32_t ceil_div(std::int64_t value, std::int64_t by) {
  return static_cast<std::uint32_t>((value + by - 1) / by);
}

}  // namespace nibble::kernels
