#include "kernels/random/random_tiles.h"

#include <cmath>
#include <vector>

#include "base/error.h"
#include "kernels/convert/expert_tiles.h"
#include "kernels/random/random_fill.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<RandomTilesArgs> row;
#include "kernels/random_tiles_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

Status validate(const RandomTilesArgs& args) {
  if (args.num_experts < 1 || args.rows < 1 || args.cols < 32 || args.cols % 32 != 0 ||
      args.middle_scale < 2 || args.middle_scale > 253) {
    return error(Code::kInvalidArgument,
                 "random_tiles: want experts, rows, columns by 32 and a scale in 2..253, got {}, "
                 "{}, {} and {}",
                 args.num_experts, args.rows, args.cols, args.middle_scale);
  }
  return {};
}

const Instance<RandomTilesArgs> kInstances[] = {
    {.info = {.name = "random_tiles_ref"},
     .accepts = &accepts_all<RandomTilesArgs>,
     .run = &run_reference<&random_tiles_ref, RandomTilesArgs>},
#define NIBBLE_INSTANCE(row) row,
#include "kernels/random_tiles_instances.inc"
#undef NIBBLE_INSTANCE
};

}  // namespace

std::span<const Instance<RandomTilesArgs>> random_tiles_instances() { return kInstances; }

Status random_tiles_ref(const RandomTilesArgs& args) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  const std::int64_t expert_blocks = std::int64_t{args.rows} * args.cols / 32;
  const std::int64_t all_blocks = args.num_experts * expert_blocks;
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(all_blocks * 16));
  std::vector<std::uint8_t> scales(static_cast<std::size_t>(all_blocks));
  NIBBLE_RETURN_IF_ERROR(
      random_fill_ref({.out = blocks.data(), .bytes = all_blocks * 16, .key = args.blocks_key}));
  NIBBLE_RETURN_IF_ERROR(random_fill_ref({.out = scales.data(),
                                          .bytes = all_blocks,
                                          .key = args.scales_key,
                                          .form = RandomForm::kScales,
                                          .middle_scale = args.middle_scale}));
  const formats::LogicalRows rows(args.rows);
  const formats::LogicalCols cols(args.cols);
  const auto extent = formats::expert_tile_extent(rows, cols);
  for (std::int64_t expert = 0; expert < args.num_experts; ++expert) {
    const ExpertRowsView from{.blocks = blocks.data() + expert * expert_blocks * 16,
                              .scales = scales.data() + expert * expert_blocks,
                              .rows = rows,
                              .cols = cols};
    NIBBLE_ASSIGN_OR_RETURN(const std::int32_t exponent,
                            pack_expert_tiles(from, {args.values + expert * extent.value_bytes(),
                                                     args.scales + expert * extent.scale_bytes()}));
    args.factors[expert] = std::ldexp(1.0F, exponent);
  }
  return {};
}

Status random_tiles(const RandomTilesArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  if (exec.device == nullptr) {  // only tests want tiles there
    return random_tiles_ref(args);
  }
  return run_best("random_tiles", random_tiles_instances(), args, exec);
}

}  // namespace nibble::kernels
