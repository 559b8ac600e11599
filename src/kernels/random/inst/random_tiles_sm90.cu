#include <algorithm>

#include "kernels/common/launch.cuh"
#include "kernels/random/device/random_tiles.cuh"
#include "kernels/random/random_tiles.h"

namespace nibble::kernels {
namespace {

constexpr std::int64_t kMostBlocks = 256;  // of an expert

Status run(const RandomTilesArgs& args, const Exec& exec) {
  const auto extent =
      formats::expert_tile_extent(formats::LogicalRows(args.rows), formats::LogicalCols(args.cols));
  const std::int64_t words = extent.value_bytes() / 4;
  const LaunchShape shape{
      .grid = dim3(std::min<unsigned>(ceil_div(words, device::kRandomTilesThreads), kMostBlocks),
                   static_cast<unsigned>(args.num_experts)),
      .block = dim3(device::kRandomTilesThreads)};
  const device::RandomTiles tiles{.values = args.values,
                                  .scales = args.scales,
                                  .factors = args.factors,
                                  .blocks_key = args.blocks_key,
                                  .scales_key = args.scales_key,
                                  .middle_scale = args.middle_scale,
                                  .rows = args.rows,
                                  .cols = args.cols};
  return launch("random_tiles", device::random_tiles, shape, exec, tiles);
}

}  // namespace

extern constinit const Instance<RandomTilesArgs> random_tiles_sm90{
    .info = {.name = "random_tiles_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &accepts_all<RandomTilesArgs>,
    .run = &run,
};

}  // namespace nibble::kernels
