#include "kernels/moe/moe_plan.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "kernels/moe/moe_planner.h"

namespace nibble::kernels {
namespace {

constexpr std::int32_t kLoadBytes = 16;  // of one lane
constexpr std::int32_t kLanes = 32;

std::int64_t round_up(std::int64_t value, std::int64_t to) { return divide_up(value, to) * to; }

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
  if (problem.w_dtype == DType::kE2M1 && problem.k % kPlanScaleBlock != 0) {
    return error(Code::kInvalidArgument, "plan: want k in whole blocks of {}, got {}",
                 kPlanScaleBlock, problem.k);
  }
  return {};
}

}  // namespace

Planner::Planner(const ProductProblem& problem, const DeviceLimits& limits)
    : p_(problem), limits_(limits) {
  rows_ = p_.tokens * p_.top_k;
  rows_per_expert_ =
      p_.num_experts == 0 ? rows_ : std::max<std::int64_t>(1, rows_ / p_.num_experts);
  is_fp4_ = p_.w_dtype == DType::kE2M1;
  has_native_mx_ = limits_.arch == Arch::kSm100 || limits_.arch == Arch::kSm120;
}

Result<LaunchPlan> Planner::run() {
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

void Planner::decide(const char* field, std::string rule) {
  const auto same = std::find_if(plan_.decisions.begin(), plan_.decisions.end(),
                                 [&](const Decision& d) { return d.field == field; });
  if (same != plan_.decisions.end()) {
    same->rule = std::move(rule);
  } else {
    plan_.decisions.push_back({field, std::move(rule)});
  }
}

void Planner::sort_decisions() {
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

void Planner::plan_cpu() {
  plan_.tile_m = 1;
  plan_.tile_n = 1;
  plan_.tile_k = kPlanScaleBlock;
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
