// Tiles, warps, stages and splits of a tiled product.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "kernels/moe/moe_planner.h"

namespace nibble::kernels {
namespace {

constexpr std::int32_t kMaxStages = 4;
constexpr std::int32_t kMaxTileM = 128;
constexpr std::int32_t kMinTileM = 16;
constexpr std::int32_t kMinTileK = 32;
constexpr std::int64_t kMinPersistentWork = 131072;
constexpr std::int32_t kWarpElems = 4096;  // accumulators that one warp holds

std::int64_t next_pow2(std::int64_t value) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(value)));
}

}  // namespace

std::int64_t Planner::tiles() const {
  const std::int64_t experts = p_.num_experts;
  const bool each_alone = experts > 0 && rows_ <= experts;
  const std::int64_t in_m = experts == 0 ? divide_up(rows_, plan_.tile_m)
                            : each_alone
                                ? rows_
                                : divide_up(rows_ - experts + 1, plan_.tile_m) + experts - 1;
  return in_m * divide_up(p_.n, plan_.tile_n);
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
    scales = std::int64_t{plan_.tile_n} * (plan_.tile_k / kPlanScaleBlock);
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

std::int64_t Planner::stages_that_fit(std::int32_t subtile) const {
  const std::int64_t room = limits_.shared_bytes - epilogue_bytes(subtile);
  return std::clamp<std::int64_t>(room / stage_bytes(), 0, kMaxStages);
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

}  // namespace nibble::kernels
