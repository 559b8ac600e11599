#include "kernels/moe/moe_cpu.h"

#include "kernels/gemm/gemm_tile.h"
#include "kernels/moe/moe_tile.h"
#include "kernels/moe/mxfp4_tile.h"
#include "kernels/moe/mxfp4_tile_int8.h"

namespace nibble::kernels {
namespace {

constexpr std::int64_t kScaleBlock = 32;

template <void (*kTile)(const Mxfp4Int8Tile&)>
void run_int8_tile(const ExpertTile& tile) {
  const auto& mxfp4 = std::get<Mxfp4Rows>(*tile.weight);
  const std::int64_t first = tile.row * tile.cols;
  kTile({.codes = mxfp4.blocks + first / 2,
         .scales = mxfp4.scales + first / kScaleBlock,
         .x = reinterpret_cast<const Int8Group*>(tile.x),
         .sums = tile.sums,
         .cols = tile.cols,
         .num_inputs = tile.num_inputs});
}

#if defined(__x86_64__)

void run_bf16_tile(const ExpertTile& tile) {
  const std::int64_t first = tile.row * tile.cols;
  const std::int64_t x_stride = tile.x_row_bytes / std::int64_t{sizeof(formats::Bf16)};
  if (const auto* mxfp4 = std::get_if<Mxfp4Rows>(tile.weight)) {
    mxfp4_tile_avx512bf16({.codes = mxfp4->blocks + first / 2,
                           .scales = mxfp4->scales + first / kScaleBlock,
                           .x = reinterpret_cast<const formats::Bf16*>(tile.x),
                           .sums = tile.sums,
                           .cols = tile.cols,
                           .x_stride = x_stride,
                           .num_inputs = tile.num_inputs});
    return;
  }
  gemm_tile_avx512bf16({.weight = std::get<Bf16Rows>(*tile.weight).values + first,
                        .x = tile.x,
                        .sums = tile.sums,
                        .num_rows = kTileRows,
                        .num_inputs = tile.num_inputs,
                        .k = tile.cols,
                        .x_stride = x_stride,
                        .x_dtype = DType::kBF16});
}

#endif  // defined(__x86_64__)

}  // namespace

Status moe_cpu(const MoeArgs& args, const Exec& exec) {
  return run_experts(args, exec, {.tile = &split_tile, .widens = true});
}

Status moe_cpu_int8(const MoeArgs& args, const Exec& exec) {
  return run_experts(args, exec, {.tile = &run_int8_tile<&mxfp4_tile_int8>});
}

#if defined(__x86_64__)
Status moe_cpu_int8_avx512vnni(const MoeArgs& args, const Exec& exec) {
  return run_experts(args, exec, {.tile = &run_int8_tile<&mxfp4_tile_int8_vnni>});
}

Status moe_cpu_avx512bf16(const MoeArgs& args, const Exec& exec) {
  return run_experts(
      args, exec,
      {.tile = &run_bf16_tile, .quads = std::holds_alternative<Mxfp4Rows>(args.gate_up.weight)});
}
#endif

}  // namespace nibble::kernels
