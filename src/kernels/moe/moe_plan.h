// Launch plan of one matrix product, dense or over ragged experts: a pure function of problem and
// device limits, so it can be asked, and tested, for hardware that is not there.
//
//   out[r, n] = x[r, :] . w[e(r)][n, :]
//
// Every field comes with the rule that decided it. docs/plans.md lists the rules, their sources and
// their boundaries. A plan is `verified` only for backends whose kernels this project has run; for
// GPU architectures nothing has, so their plans say what will be tried first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"
#include "tensor/dtype.h"

namespace nibble::kernels {

enum class Arch : std::uint8_t { kCpu, kSm90, kSm100, kSm120 };

struct DeviceLimits {
  Arch arch = Arch::kCpu;
  std::int32_t num_sms = 1;       // CPU: workers
  std::int64_t shared_bytes = 0;  // most that one block may ask for
  bool has_tma = false;
  std::string warning;  // what is unsure about this mapping; empty: nothing
};

// "cpu", "sm_90", "sm_90a", "9.0", ... Limits are those of H200, B200 and the RTX 5090. 10.x is the
// sm_100 family, 12.x the sm_120 family; a newer capability gets the sm_120 rules, the portable
// ones, and a warning. kUnsupported below 9.0, kInvalidArgument for another text.
Result<DeviceLimits> device_limits(std::string_view arch);
std::string_view arch_name(Arch arch);

struct ProductProblem {
  std::int64_t tokens = 0;       // >= 1
  std::int32_t num_experts = 0;  // 0: dense
  std::int32_t top_k = 1;        // rows are tokens * top_k; 1 when dense
  std::int64_t n = 0;
  std::int64_t k = 0;            // FP4: multiple of 32
  DType x_dtype = DType::kBF16;  // kBF16, kF32 or kE4M3
  DType w_dtype = DType::kE2M1;  // kE2M1 (MXFP4) or kBF16
  DType out_dtype = DType::kBF16;
  bool accumulates = false;       // adds to what `out` holds
  bool is_deterministic = false;  // a row's bits may not depend on the batch
};

enum class ProductForm : std::uint8_t {
  kTiled,          // blocks own tiles of (rows, n)
  kOutputCentric,  // warps own output columns and walk the token's experts; no sort, no scatter
};
// How the weight lies in memory (docs/formats). Chosen for a device once, whatever the row count.
enum class WeightLayout : std::uint8_t { kStrided, kHopper, kBlackwell };

struct Decision {
  std::string field;
  std::string rule;
};

struct LaunchPlan {
  ProductForm form = ProductForm::kTiled;
  WeightLayout layout = WeightLayout::kStrided;
  std::int32_t tile_m = 0;
  std::int32_t tile_n = 0;
  std::int32_t tile_k = 0;
  std::int32_t num_warps = 0;  // CPU: workers
  std::int32_t num_stages = 0;
  std::int32_t split_k = 1;
  std::int32_t epilogue_subtile = 1;
  bool is_persistent = false;
  std::int64_t padded_n = 0;  // sizes of the stored weight; the product itself runs over n and k
  std::int64_t padded_k = 0;
  std::int64_t shared_bytes = 0;  // of one block
  std::int64_t grid = 0;          // blocks, the bound known without the histogram
  bool verified = false;
  // One for each field above, in that order, named as in `nibble plan --json`.
  std::vector<Decision> decisions;
};

// kInvalidArgument for sizes without meaning; kUnsupported when no tile fits the shared memory.
Result<LaunchPlan> plan_product(const ProductProblem& problem, const DeviceLimits& limits);

std::string_view form_name(ProductForm form);
std::string_view layout_name(WeightLayout layout);

// Boundaries that come from measurements which others published, not from this project; each is to
// be measured on its hardware before it counts as known.
inline constexpr std::int64_t kOutputCentricTokens = 8;    // small-batch kernels: 1 to 8 rows win
inline constexpr std::int64_t kFmaTokens = 3;              // above, mma.sync beats CUDA-core FMA
inline constexpr std::int64_t kBytesInFlight = 40 << 10U;  // of one SM, to stream at full rate
inline constexpr std::int32_t kStreamingBlocks = 8;        // blocks of 256 threads on an SM
inline constexpr std::int32_t kMinStridedWarps = 4;        // sm_120, FP4, not persistent

}  // namespace nibble::kernels
