// A model on a GPU that is too small for it: the experts of the first layers stay in host memory
// and are computed there (`--n-cpu-moe N`). What goes where, what it costs, and whether it fits;
// pure arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nibble/status.h"

namespace nibble::commands {

// What a split needs to know of a model and of the two memories. Rates are bytes a second, 0 when
// unknown.
struct OffloadProblem {
  std::string name;
  std::int32_t num_layers = 0;
  std::int64_t layer_expert_bytes = 0;  // all experts of one layer, biases included
  std::int64_t other_bytes = 0;         // every other weight
  std::int64_t cache_bytes = 0;         // keys and values
  std::int64_t token_expert_bytes = 0;  // read for one token, all layers
  std::int64_t token_other_bytes = 0;   // likewise
  std::int64_t gpu_bytes = 0;           // memory of the card
  std::int64_t host_bytes = 0;          // host memory available
  double gpu_rate = 0.0;
  double host_rate = 0.0;
};

struct OffloadPlan {
  std::int32_t n_cpu_moe = 0;  // layers whose experts are in host memory
  std::int64_t gpu_weight_bytes = 0;
  std::int64_t gpu_cache_bytes = 0;
  std::int64_t gpu_reserve_bytes = 0;  // activations, graphs, the driver's context
  std::int64_t gpu_total_bytes = 0;
  std::int64_t host_total_bytes = 0;
  double gpu_ms = 0.0;  // of one token at the given rates; 0: rate unknown
  double host_ms = 0.0;
  double tokens_per_second = 0.0;  // upper bound at batch 1: both parts one after the other
};

// `n_cpu_moe` -1 takes the fewest layers that fit. kExhausted with the numbers when the wanted
// split, or any, does not fit, naming the smallest N that would; kInvalidArgument for N outside
// 0..num_layers.
Result<OffloadPlan> plan_offload(const OffloadProblem& problem, std::int32_t n_cpu_moe);

}  // namespace nibble::commands
