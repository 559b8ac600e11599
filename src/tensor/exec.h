// Where a kernel call runs: on the workers of a pool, or enqueued on a device stream. Lets host
// code name a stream without the CUDA headers.
#pragma once

#include "base/thread_pool.h"

struct CUstream_st;

namespace nibble {

using Stream = CUstream_st*;

struct Exec {
  ThreadPool* pool = nullptr;  // CPU kernels; null for scalar references
  Stream stream = nullptr;     // CUDA kernels
};

}  // namespace nibble
