// Launch plans of matrix products: pure functions of problem and device, for hardware that need not
// be there. May be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nibble/status.h"

namespace nibble {

/// The device to plan for.
struct PlanDevice {
  std::string arch = "cpu";       ///< "cpu", "sm_90", "sm_100", "sm_120", "9.0", ...
  std::int32_t num_sms = 0;       ///< 0: H200, B200 or RTX 5090; on a CPU the processors here
  std::int64_t shared_bytes = 0;  ///< most for one block; 0: that of the architecture
  bool has_tma = true;            ///< false: plan without the bulk copy engine
};

/// out[rows, n] = x[rows, k] . w[n, k]^T in bfloat16, rows = tokens * top_k over ragged experts.
struct ProductProblem {
  std::int64_t tokens = 0;
  std::int32_t num_experts = 0;  ///< 0: one dense weight
  std::int32_t top_k = 1;
  std::int64_t n = 0;
  std::int64_t k = 0;             ///< a multiple of 32 with MXFP4 weights
  bool has_mxfp4_weights = true;  ///< false: bfloat16
  bool accumulates = false;       ///< added to what the output holds
  bool is_deterministic = false;  ///< no row may depend on the batch
};

struct PlanRule {
  std::string field;
  std::string rule;
};

struct ProductPlan {
  std::string arch;
  std::string form;    ///< "tiled" or "output_centric"
  std::string layout;  ///< of the weight: "strided", "hopper" or "blackwell"
  std::int32_t block_m = 0;
  std::int32_t block_n = 0;
  std::int32_t block_k = 0;
  std::int32_t num_warps = 0;  ///< on a CPU: workers
  std::int32_t num_stages = 0;
  std::int32_t split_k = 1;
  std::int32_t epilogue_subtile = 1;
  bool is_persistent = false;
  std::int64_t padded_n = 0;  ///< sizes of the stored weight; the product runs over n and k
  std::int64_t padded_k = 0;
  std::int64_t shared_bytes = 0;
  std::int64_t grid = 0;        ///< blocks
  bool verified = false;        ///< whether kernels of this architecture have been run
  std::vector<PlanRule> rules;  ///< what decided each field
  std::string warning;          ///< about the architecture; empty: none
};

/// kInvalidArgument for sizes without meaning or an unknown architecture; kUnsupported for a GPU
/// below compute capability 9.0, or when no tile fits the shared memory. docs/plans.md lists every
/// rule with its source.
Result<ProductPlan> plan_product(const ProductProblem& problem, const PlanDevice& device);

}  // namespace nibble
