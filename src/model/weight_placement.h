// Weights beside the workers that read them, on machines with several memory nodes.
//
// Matrices stay in the mapped files. A worker multiplies the same rows in every step (but for a
// last page at each border), so its pages are brought to its node once, at load: first those that
// are not in memory yet are read by it, then those that lie elsewhere are moved, in the page cache
// too. On one node nothing is done, and nothing is read before it is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "model/config.h"
#include "model/model_arrays.h"

namespace nibble::model {

struct WorkerBytes {
  const std::byte* begin = nullptr;
  std::int64_t bytes = 0;
  int worker = 0;
};

// What each of `workers` workers reads of projections, router, head and experts: every byte of them
// once. Embedding rows are nobody's.
std::vector<WorkerBytes> bytes_of_workers(const ModelConfig& config, const ModelArrays& arrays,
                                          bool int8_experts, int workers);

// Brings them there. Returns how many pages lie on their worker's node then.
std::int64_t place_weights(const std::vector<WorkerBytes>& shares, ThreadPool& pool);

}  // namespace nibble::model
