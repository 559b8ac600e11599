// Where a kernel call runs: on the workers of a pool, or enqueued on a stream of a GPU. Lets host
// code name a stream without the CUDA headers.
#pragma once

#include "tensor/device_facts.h"

struct CUstream_st;

namespace nibble {

class KernelTrace;
class ThreadPool;

using Stream = CUstream_st*;

struct Exec {
  ThreadPool* pool = nullptr;  // CPU kernels; null for scalar references
  Stream stream = nullptr;     // CUDA kernels
  // Set: pointers of the call are memory of this GPU and a CUDA kernel is enqueued on `stream`.
  const DeviceFacts* device = nullptr;
  KernelTrace* trace = nullptr;  // set: is told which kernels are chosen
};

}  // namespace nibble
