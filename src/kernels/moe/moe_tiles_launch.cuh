// Typed launches of the expert products over tiles. One block on each multiprocessor; three
// dependent grids: gate/up with activation, down, weighted sum into the residual.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/common/launch.cuh"
#include "kernels/moe/device/moe_combine.cuh"
#include "kernels/moe/device/moe_grouped.cuh"
#include "kernels/moe/device/moe_stream.cuh"
#include "kernels/moe/moe_tiles.h"

namespace nibble::kernels {

// Shapes that won on an H200 (docs/kernels/moe.md).
using MoeStream8 = device::StreamConfig<8, 15, 3, 3>;
using MoeStream16 = device::StreamConfig<16, 15, 3, 3>;
using MoeGrouped48 = device::GroupedConfig<48, 4, 5, 1, 2, 5>;
using MoeGrouped192 = device::GroupedConfig<192, 2, 5, 1, 2, 1>;

// The pair of kernels of one shape.
template <typename Config>
struct MoeStreamKernels {
  static constexpr const char* kName = "moe_stream";
  static constexpr int kThreads = Config::kThreads;
  static constexpr std::size_t kSharedBytes = sizeof(device::StreamShared<Config>);
  static constexpr auto kGateUp = device::moe_stream<Config, device::Epilogue::kGated>;
  static constexpr auto kDown = device::moe_stream<Config, device::Epilogue::kPlain>;

  static bool accepts(const MoeTilesArgs& args) {
    const std::int64_t rows = std::int64_t{args.num_tokens} * args.top_k;
    const std::int64_t groups =
        std::min<std::int64_t>(rows, args.num_experts) + rows / Config::kGroupRows;
    return std::max(args.hidden, args.intermediate) <= Config::kMaxCols &&
           groups <= Config::kMaxGroups;
  }
};
template <typename Config>
struct MoeGroupedKernels {
  static constexpr const char* kName = "moe_grouped";
  static constexpr int kThreads = Config::kThreads;
  static constexpr std::size_t kSharedBytes = sizeof(device::GroupedShared<Config>);
  static constexpr auto kGateUp = device::moe_grouped<Config, device::Epilogue::kGated>;
  static constexpr auto kDown = device::moe_grouped<Config, device::Epilogue::kPlain>;

  static bool accepts(const MoeTilesArgs& args) { return args.num_experts <= Config::kMaxExperts; }
};

inline device::ExpertTiles expert_tiles(const Mxfp4Tiles& from, std::int32_t rows,
                                        std::int32_t cols) {
  const auto extent =
      formats::expert_tile_extent(formats::LogicalRows(rows), formats::LogicalCols(cols));
  return {.values = from.values,
          .scales = from.scales,
          .factors = from.factors,
          .bias = reinterpret_cast<const __nv_bfloat16*>(from.bias),
          .rows = rows,
          .cols = cols,
          .bands = static_cast<std::int32_t>(extent.bands),
          .chunks = static_cast<std::int32_t>(extent.chunks)};
}

inline device::ExpertProduct gate_up_product(const MoeTilesArgs& args) {
  return {.weight = expert_tiles(args.gate_up, 2 * args.intermediate, args.hidden),
          .x = reinterpret_cast<const __nv_bfloat16*>(args.x),
          .gather = args.gather,
          .slice_offs = args.slice_offs,
          .out = moe_tiles_workspace(args).h,
          .top_k = args.top_k,
          .num_experts = args.num_experts,
          .alpha = args.alpha,
          .limit = args.limit,
          .may_prefetch = false};
}
inline device::ExpertProduct down_product(const MoeTilesArgs& args) {
  const MoeTilesWorkspace workspace = moe_tiles_workspace(args);
  return {.weight = expert_tiles(args.down, args.hidden, args.intermediate),
          .x = reinterpret_cast<const __nv_bfloat16*>(workspace.h),
          .gather = nullptr,
          .slice_offs = args.slice_offs,
          .out = workspace.y,
          .top_k = args.top_k,
          .num_experts = args.num_experts,
          .alpha = args.alpha,
          .limit = args.limit,
          .may_prefetch = true};
}

template <typename Kernels>
Status launch_product(void (*kernel)(device::ExpertProduct), const device::ExpertProduct& product,
                      const Exec& exec) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(exec.device->num_sms)),
                          .block = dim3(Kernels::kThreads),
                          .shared_bytes = Kernels::kSharedBytes,
                          .is_dependent = true};
  return launch(Kernels::kName, kernel, shape, exec, product);
}

inline device::MoeCombine combine_of(const MoeTilesArgs& args) {
  return {.y = moe_tiles_workspace(args).y,
          .scatter = args.scatter,
          .weights = args.weights,
          .out = args.out,
          .num_tokens = args.num_tokens,
          .hidden = args.hidden,
          .top_k = args.top_k};
}
inline Status launch_combine(const device::MoeCombine& combine, const Exec& exec) {
  const std::int64_t quads = std::int64_t{combine.num_tokens} * combine.hidden / 4;
  const LaunchShape shape{.grid = dim3(ceil_div(quads, device::kCombineThreads)),
                          .block = dim3(device::kCombineThreads),
                          .is_dependent = true};
  return launch("moe_combine", device::moe_combine<device::kCombineThreads>, shape, exec, combine);
}

template <typename Kernels>
Status allow_shared() {
  NIBBLE_RETURN_IF_ERROR(
      allow_shared_bytes(Kernels::kName, Kernels::kGateUp, Kernels::kSharedBytes));
  return allow_shared_bytes(Kernels::kName, Kernels::kDown, Kernels::kSharedBytes);
}

template <typename Kernels>
Status launch_moe_tiles(const MoeTilesArgs& args, const Exec& exec) {
  static const Status kAllowed = allow_shared<Kernels>();
  NIBBLE_RETURN_IF_ERROR(Status(kAllowed));
  NIBBLE_RETURN_IF_ERROR(launch_product<Kernels>(Kernels::kGateUp, gate_up_product(args), exec));
  NIBBLE_RETURN_IF_ERROR(launch_product<Kernels>(Kernels::kDown, down_product(args), exec));
  return launch_combine(combine_of(args), exec);
}

}  // namespace nibble::kernels
