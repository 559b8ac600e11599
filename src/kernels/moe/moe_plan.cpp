#include "kernels/moe/moe_plan.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace nibble::kernels {
namespace {

constexpr std::int64_t kScaleBlock = 32;
constexpr std::int32_t kMaxStages = 4;
constexpr std::int32_t kMaxTileM = 128;
constexpr std::int32_t kMinTileM = 16;
constexpr std::int32_t kMinTileK = 32;
constexpr std::int32_t kHopperWarps = 8;
constexpr std::int64_t kMinPersistentWork = 131072;
constexpr std::int32_t kWarpElems = 4096;  // accumulators that one warp holds
constexpr std::int32_t kLoadBytes = 16;    // of one lane
constexpr std::int32_t kLanes = 32;

std::int64_t next_pow2(std::int64_t value) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(value)));
}
std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
std::int64_t round_up(std::int64_t value, std::int64_t to) { return divide_up(value, to) * to; }

// Builds a plan field by field; each step may read what the steps before it decided.
class Planner {
 public:
  Planner(const ProductProblem& problem, const DeviceLimits& limits)
      : p_(problem), limits_(limits) {
    rows_ = p_.tokens * p_.top_k;
    rows_per_expert_ =
        p_.num_experts == 0 ? rows_ : std::max<std::int64_t>(1, rows_ / p_.num_experts);
    is_fp4_ = p_.w_dtype == DType::kE2M1;
    has_native_mx_ = limits_.arch == Arch::kSm100 || limits_.arch == Arch::kSm120;
  }

  Result<LaunchPlan> run() {
    if (limits_.arch == Arch::kCpu) {
      plan_cpu();
      return plan_;
    }
    choose_layout();
    choose_form();
    if (plan_.form == ProductForm::kOutputCentric) {
      plan_output_centric();
    } else {
      choose_tile_m();
      choose_tile_n();
      choose_persistence();
      choose_tile_k();
      swap_n_and_k();
      choose_warps();
      NIBBLE_RETURN_IF_ERROR(choose_stages());
      choose_split();
    }
    choose_padding();
    decide("verified", "unverified: no kernel of this architecture has been run by this project");
    sort_decisions();
    return plan_;
  }

 private:
  // The last rule given for a field stands.
  void decide(const char* field, std::string rule) {
    const auto same = std::find_if(plan_.decisions.begin(), plan_.decisions.end(),
                                   [&](const Decision& d) { return d.field == field; });
    if (same != plan_.decisions.end()) {
      same->rule = std::move(rule);
    } else {
      plan_.decisions.push_back({field, std::move(rule)});
    }
  }

  void sort_decisions() {
    static constexpr std::string_view kOrder[] = {
        "form",         "layout",  "block_m",          "block_n",    "block_k",  "num_warps",
        "num_stages",   "split_k", "epilogue_subtile", "persistent", "padded_n", "padded_k",
        "shared_bytes", "grid",    "verified"};
    const auto place = [](const Decision& d) {
      return std::find(std::begin(kOrder), std::end(kOrder), d.field) - std::begin(kOrder);
    };
    std::sort(plan_.decisions.begin(), plan_.decisions.end(),
              [&](const Decision& a, const Decision& b) { return place(a) < place(b); });
  }

  void plan_cpu();
  void choose_layout();
  void choose_form();
  void plan_output_centric();
  void choose_tile_m();
  void choose_tile_n();
  void choose_persistence();
  void choose_tile_k();
  void swap_n_and_k();
  void choose_warps();
  Status choose_stages();
  void choose_split();
  void choose_padding();

  std::int64_t tiles() const {
    const std::int64_t experts = p_.num_experts;
    const bool each_alone = experts > 0 && rows_ <= experts;
    const std::int64_t in_m = experts == 0 ? divide_up(rows_, plan_.tile_m)
                              : each_alone
                                  ? rows_
                                  : divide_up(rows_ - experts + 1, plan_.tile_m) + experts - 1;
    return in_m * divide_up(p_.n, plan_.tile_n);
  }
  std::int64_t stage_bytes() const;
  std::int64_t epilogue_bytes(std::int32_t subtile) const;
  std::int64_t stages_that_fit(std::int32_t subtile) const {
    const std::int64_t room = limits_.shared_bytes - epilogue_bytes(subtile);
    return std::clamp<std::int64_t>(room / stage_bytes(), 0, kMaxStages);
  }

  ProductProblem p_;
  DeviceLimits limits_;
  LaunchPlan plan_;
  std::int64_t rows_ = 0;
  std::int64_t rows_per_expert_ = 0;
  bool is_fp4_ = false;
  bool has_native_mx_ = false;
};

void Planner::plan_cpu() {
  plan_.tile_m = 1;
  plan_.tile_n = 1;
  plan_.tile_k = kScaleBlock;
  plan_.num_warps = limits_.num_sms;
  plan_.num_stages = 1;
  plan_.padded_n = p_.n;
  plan_.padded_k = p_.k;
  plan_.grid = limits_.num_sms;
  plan_.verified = true;
  decide("form", "a processor has no tiles to launch: workers split the output columns");
  decide("layout", "cpu: the bytes as published, read in order");
  decide("block_m", "cpu: the kernel blocks rows by itself");
  decide("block_n", "cpu: columns are split one by one over the workers");
  decide("block_k", "cpu: one scale block of 32 at a time, summed in that order");
  decide("num_warps", fmt::format("cpu: {} workers of the pool", plan_.num_warps));
  decide("num_stages", "cpu: the hardware prefetches");
  decide("split_k", "cpu: a row's sum has one order, whatever the batch");
  decide("epilogue_subtile", "cpu: not applicable");
  decide("persistent", "cpu: not applicable");
  decide("padded_n", "cpu: unpadded");
  decide("padded_k", "cpu: unpadded");
  decide("shared_bytes", "cpu: none");
  decide("grid", "cpu: one piece for each worker");
  decide("verified", "the CPU kernels are tested against the scalar reference");
}

void Planner::choose_layout() {
  if (!is_fp4_) {
    decide("layout", "bf16 weights stay as published");
  } else if (limits_.arch == Arch::kSm90) {
    plan_.layout = WeightLayout::kHopper;
    decide("layout",
           "sm_90 FP4: 16-row tile order, so that a lane loads its share of the fragments");
  } else if (limits_.arch == Arch::kSm100 && limits_.has_tma) {
    plan_.layout = WeightLayout::kBlackwell;
    decide("layout", "sm_100 FP4: K-contiguous values and 128x4 scales for TMA and tcgen05");
  } else {
    decide("layout", limits_.arch == Arch::kSm120
                         ? "sm_120 FP4: strided, since mma.sync has no use for a swizzle"
                         : "FP4 without TMA: strided");
  }
}

void Planner::choose_form() {
  const std::int64_t bytes =
      std::min(p_.tokens, kOutputCentricTokens) * p_.k * dtype_bits(p_.x_dtype) / 8;
  const std::int64_t held =
      p_.tokens > kFmaTokens ? kOutputCentricTokens * p_.k * dtype_bits(p_.x_dtype) / 8 : bytes;
  if (p_.is_deterministic) {
    decide("form", "deterministic: one form for every row count");
  } else if (p_.tokens > kOutputCentricTokens) {
    decide("form", fmt::format("{} tokens > {}: tiled (published small-batch measurements)",
                               p_.tokens, kOutputCentricTokens));
  } else if (held > limits_.shared_bytes) {
    decide("form", fmt::format("{} bytes of activations exceed {} of shared memory: tiled", held,
                               limits_.shared_bytes));
  } else {
    plan_.form = ProductForm::kOutputCentric;
    plan_.shared_bytes = held;
    decide("form",
           fmt::format("{} tokens <= {}: output-centric (published small-batch measurements)",
                       p_.tokens, kOutputCentricTokens));
  }
}

void Planner::plan_output_centric() {
  const bool uses_mma = p_.tokens > kFmaTokens;
  const std::int64_t blocks =
      std::clamp<std::int64_t>(limits_.shared_bytes / plan_.shared_bytes, 1, kStreamingBlocks);
  plan_.num_warps = kHopperWarps;
  const std::int64_t step_bytes = std::int64_t{plan_.num_warps} * kLanes * kLoadBytes;
  plan_.tile_m = static_cast<std::int32_t>(uses_mma ? kOutputCentricTokens : p_.tokens);
  plan_.tile_n = plan_.num_warps * (uses_mma ? 16 : 1);
  plan_.tile_k = kLanes * kLoadBytes * 8 / dtype_bits(p_.w_dtype);
  plan_.num_stages = static_cast<std::int32_t>(divide_up(kBytesInFlight, blocks * step_bytes));
  plan_.grid = divide_up(p_.n, plan_.tile_n);
  decide("block_m", uses_mma ? fmt::format("{} tokens > {}: mma.sync m16n8k16, tokens are its n8",
                                           p_.tokens, kFmaTokens)
                             : fmt::format("{} tokens <= {}: fp32 FMA, every token in registers",
                                           p_.tokens, kFmaTokens));
  decide("block_n",
         uses_mma ? "a warp owns the 16 columns of one fragment" : "a warp owns one column");
  decide("block_k", "one 16-byte load of each of 32 lanes");
  decide("num_warps", fmt::format("256 threads; {} such blocks on an SM read at the full rate "
                                  "(measured on H200)",
                                  kStreamingBlocks));
  decide("num_stages",
         fmt::format("{} bytes in flight on an SM with {} blocks", kBytesInFlight, blocks));
  decide("split_k", "a warp sums the whole of k");
  decide("epilogue_subtile", "not persistent");
  decide("persistent", "output-centric: one block for each group of columns");
  decide("shared_bytes", "activations of the tokens, read once");
  decide("grid", "columns over the columns of a block");
}

void Planner::choose_tile_m() {
  const std::int64_t rows = rows_per_expert_;
  if (p_.is_deterministic) {
    plan_.tile_m = kMaxTileM;
    decide("block_m", "deterministic: 128 for every row count");
    return;
  }
  std::int64_t tile = std::clamp<std::int64_t>(next_pow2(rows), kMinTileM, kMaxTileM);
  std::string rule = fmt::format("{} rows, rounded up to a power of two in 16..128", rows);
  if (p_.num_experts > 0 && rows <= 64) {
    const bool is_wide =
        limits_.arch == Arch::kSm100 && is_fp4_ && p_.x_dtype == DType::kBF16 && rows >= 16;
    tile = is_wide ? std::clamp<std::int64_t>(next_pow2(8 * rows), kMinTileM, kMaxTileM)
                   : std::clamp<std::int64_t>(next_pow2(2 * rows), kMinTileM, 64);
    rule = fmt::format("{} rows an expert on average, {} for uneven routing, at most {}", rows,
                       is_wide ? "times 8 (sm_100, bf16 x FP4)" : "times 2", is_wide ? 128 : 64);
  }
  plan_.tile_m = static_cast<std::int32_t>(tile);
  decide("block_m", std::move(rule));
}

void Planner::choose_tile_n() {
  if (plan_.layout == WeightLayout::kHopper) {
    plan_.tile_n = 32 * kHopperWarps;
    decide("block_n", "Hopper scale layout: 32 columns a warp");
  } else if (p_.n > 128) {
    plan_.tile_n = 256;
    decide("block_n", fmt::format("n = {} > 128: 256", p_.n));
  } else {
    plan_.tile_n = static_cast<std::int32_t>(std::clamp<std::int64_t>(next_pow2(p_.n), 16, 128));
    decide("block_n", fmt::format("n = {} <= 128: a power of two, at least 16", p_.n));
  }
}

void Planner::choose_persistence() {
  plan_.grid = tiles();
  decide("grid", p_.num_experts == 0 ? "tiles of m times tiles of n"
                                     : "bound over every distribution of rows, times tiles of n");
  const double waves = static_cast<double>(plan_.grid) / limits_.num_sms;
  const bool is_small = p_.tokens * p_.top_k * p_.n * p_.k < kMinPersistentWork;
  const bool is_wide_out = dtype_bits(p_.out_dtype) >= 32;
  if (plan_.layout == WeightLayout::kBlackwell) {
    plan_.is_persistent = true;
    decide("persistent", "Blackwell layout: only the persistent TMA kernel reads it");
  } else if (!limits_.has_tma) {
    decide("persistent", "no TMA: never persistent");
  } else if (is_fp4_) {
    decide("persistent", fmt::format("TMA does not load 4-bit weights of layout {}: not persistent",
                                     layout_name(plan_.layout)));
  } else if (limits_.arch == Arch::kSm120) {
    decide("persistent", "sm_120: 99 KB leave no room for the epilogue of a persistent kernel");
  } else if (is_small || is_wide_out) {
    decide("persistent", is_small ? fmt::format("m * n * k < {}: too small", kMinPersistentWork)
                                  : std::string("4-byte output: the epilogue does not fit"));
  } else {
    plan_.is_persistent = waves >= 2.0 || dtype_bits(p_.x_dtype) == 8;
    decide("persistent", fmt::format("{:.2f} tiles an SM {} 2{}", waves, waves >= 2.0 ? ">=" : "<",
                                     dtype_bits(p_.x_dtype) == 8 ? ", 8-bit activations" : ""));
  }
  if (plan_.is_persistent) {
    plan_.grid = std::min<std::int64_t>(plan_.grid, limits_.num_sms);
    decide("grid", "persistent: one block an SM, no more than there are tiles");
  }
}

void Planner::choose_tile_k() {
  const int bits = std::min(dtype_bits(p_.x_dtype), dtype_bits(p_.w_dtype));
  std::int64_t tile = 1024 / bits;
  std::string rule = fmt::format("1024 bits of the narrower operand ({} bits)", bits);
  if (is_fp4_ && !has_native_mx_) {
    tile = 128;
    rule = "FP4 without native matrix instructions: 128";
  } else {
    const bool both_16 = dtype_bits(p_.x_dtype) == 16 && dtype_bits(p_.w_dtype) == 16;
    const std::int64_t least = !plan_.is_persistent && both_16 ? 16 : kMinTileK;
    tile = std::clamp<std::int64_t>(tile, least, std::max(least, next_pow2(p_.k)));
    if (plan_.is_persistent && is_fp4_ && tile > 128) {
      tile = 128;
      rule = "native, persistent, FP4: at most 128";
    }
    if (p_.accumulates && both_16 && limits_.arch == Arch::kSm90 && tile > 32) {
      tile = 32;
      rule = "16-bit product added to its output on sm_90: at most 32";
    }
  }
  plan_.tile_k = static_cast<std::int32_t>(tile);
  decide("block_k", std::move(rule));
}

void Planner::swap_n_and_k() {
  if (plan_.tile_m <= 64 && plan_.is_persistent && is_fp4_ && p_.k >= 4096 &&
      rows_per_expert_ > 1 && p_.x_dtype != DType::kBF16 && plan_.tile_n == 256 &&
      plan_.tile_k == 128) {
    std::swap(plan_.tile_n, plan_.tile_k);
    decide("block_n", "few rows, long k, narrow activations: 256 and 128 change places");
    decide("block_k", "few rows, long k, narrow activations: 256 and 128 change places");
  }
}

void Planner::choose_warps() {
  if (plan_.layout == WeightLayout::kHopper) {
    plan_.num_warps = kHopperWarps;
    decide("num_warps", "Hopper scale layout: made for 8 warps");
    return;
  }
  const bool is_strided_fp4 = limits_.arch == Arch::kSm120 && is_fp4_ && !plan_.is_persistent &&
                              plan_.layout == WeightLayout::kStrided;
  const std::int32_t wanted = plan_.tile_m * plan_.tile_n / kWarpElems;
  const std::int32_t least = is_strided_fp4 ? kMinStridedWarps : plan_.is_persistent ? 4 : 1;
  plan_.num_warps = std::max(wanted, least);
  if (wanted >= least) {
    decide("num_warps", fmt::format("block_m * block_n / {}", kWarpElems));
  } else if (is_strided_fp4) {
    decide("num_warps",
           "sm_120, strided FP4 scales, not persistent: at least 4 (one warp is several "
           "times slower)");
  } else {
    decide("num_warps", fmt::format("at least {}", least));
  }
}

std::int64_t Planner::stage_bytes() const {
  const std::int64_t x = std::int64_t{plan_.tile_m} * plan_.tile_k * dtype_bits(p_.x_dtype) / 8;
  std::int64_t w = std::int64_t{plan_.tile_k} * plan_.tile_n * dtype_bits(p_.w_dtype) / 8;
  std::int64_t scales = 0;
  if (is_fp4_ && has_native_mx_) {
    w *= 2;  // unpacked copy
    scales = std::int64_t{plan_.tile_n} * (plan_.tile_k / kScaleBlock);
  }
  return x + w + scales + (plan_.is_persistent ? 8 : 0);  // 8: the stage's barrier
}

std::int64_t Planner::epilogue_bytes(std::int32_t subtile) const {
  if (!plan_.is_persistent) {
    return 0;
  }
  const std::int64_t columns = plan_.tile_n / subtile;
  const std::int64_t bytes = (plan_.tile_m + 4) * columns * dtype_bits(p_.out_dtype) / 8;
  return p_.accumulates ? bytes * 5 / 4 : bytes;
}

Status Planner::choose_stages() {
  const std::int32_t first_tile_k = plan_.tile_k;
  while (true) {
    std::int64_t best = 0;
    const std::int32_t subtiles = plan_.is_persistent ? 4 : 1;
    for (std::int32_t subtile = 1; subtile <= subtiles; subtile *= 2) {
      if (stages_that_fit(subtile) > best) {
        best = stages_that_fit(subtile);
        plan_.epilogue_subtile = subtile;
      }
    }
    plan_.num_stages = static_cast<std::int32_t>(best);
    if (best > 0) {
      break;
    }
    if (plan_.tile_k <= kMinTileK) {
      return error(Code::kUnsupported,
                   "plan: a stage of {} bytes exceeds {} bytes of shared memory", stage_bytes(),
                   limits_.shared_bytes);
    }
    plan_.tile_k /= 2;
  }
  if (plan_.tile_k != first_tile_k) {
    decide("block_k", fmt::format("halved from {} until a stage fits {} bytes of shared memory",
                                  first_tile_k, limits_.shared_bytes));
  }
  plan_.shared_bytes = plan_.num_stages * stage_bytes() + epilogue_bytes(plan_.epilogue_subtile);
  decide("num_stages", fmt::format("{} bytes a stage in {}, at most {}", stage_bytes(),
                                   limits_.shared_bytes, kMaxStages));
  decide("epilogue_subtile",
         plan_.is_persistent ? "the first of 1, 2, 4 with the most stages" : "not persistent");
  decide("shared_bytes", plan_.is_persistent ? "stages and the epilogue's tile" : "stages");
  return {};
}

void Planner::choose_split() {
  if (is_fp4_ || p_.num_experts > 0) {
    decide("split_k", "block scales or scattered rows: k is not split");
  } else if (p_.is_deterministic) {
    decide("split_k", "deterministic: a row's sum has one order");
  } else {
    const std::int64_t idle = limits_.num_sms / std::max<std::int64_t>(1, tiles());
    const std::int64_t most = divide_up(p_.k, plan_.tile_k) / 4;
    plan_.split_k = static_cast<std::int32_t>(std::max<std::int64_t>(1, std::min(idle, most)));
    decide("split_k", fmt::format("min(SMs / tiles = {}, steps of k / 4 = {})", idle, most));
  }
}

void Planner::choose_padding() {
  plan_.padded_n = p_.n;
  plan_.padded_k = p_.k;
  std::string rule = fmt::format("k = {} unpadded; the tail is masked", p_.k);
  if (plan_.layout == WeightLayout::kHopper) {
    plan_.padded_n = round_up(p_.n, 64);
    plan_.padded_k = round_up(p_.k, 128);
    rule = fmt::format("k = {} unpadded in the product; stored tiles are 64 bytes of two values",
                       p_.k);
  } else if (plan_.layout == WeightLayout::kBlackwell) {
    plan_.padded_n = round_up(p_.n, 128);
    plan_.padded_k = round_up(p_.k, 256);
    rule = "stored rows are multiples of 128 bytes, as TMA wants them";
  }
  decide("padded_n",
         plan_.layout == WeightLayout::kStrided ? "unpadded" : "whole tiles of the layout");
  decide("padded_k", std::move(rule));
}

Status check(const ProductProblem& problem) {
  if (problem.tokens < 1 || problem.n < 1 || problem.k < 1) {
    return error(Code::kInvalidArgument, "plan: want tokens, n and k of at least 1, got {}, {}, {}",
                 problem.tokens, problem.n, problem.k);
  }
  if (problem.num_experts < 0 || problem.top_k < 1 ||
      problem.top_k > std::max(problem.num_experts, 1)) {
    return error(Code::kInvalidArgument, "plan: want 1 <= top_k <= experts, got {} of {}",
                 problem.top_k, problem.num_experts);
  }
  if (problem.w_dtype != DType::kE2M1 && problem.w_dtype != DType::kBF16) {
    return error(Code::kUnsupported, "plan: want weights of e2m1 or bf16, got {}",
                 dtype_name(problem.w_dtype));
  }
  if (problem.w_dtype == DType::kE2M1 && problem.k % kScaleBlock != 0) {
    return error(Code::kInvalidArgument, "plan: want k in whole blocks of {}, got {}", kScaleBlock,
                 problem.k);
  }
  return {};
}

}  // namespace

std::string_view form_name(ProductForm form) {
  return form == ProductForm::kTiled ? "tiled" : "output_centric";
}

std::string_view layout_name(WeightLayout layout) {
  switch (layout) {
    case WeightLayout::kStrided: return "strided";
    case WeightLayout::kHopper: return "hopper";
    case WeightLayout::kBlackwell: return "blackwell";
  }
  return "unknown";
}

Result<LaunchPlan> plan_product(const ProductProblem& problem, const DeviceLimits& limits) {
  NIBBLE_RETURN_IF_ERROR(check(problem));
  return Planner(problem, limits).run();
}

}  // namespace nibble::kernels
