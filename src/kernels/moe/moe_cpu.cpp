#include "kernels/moe/moe_cpu.h"

#include "kernels/gemm/gemm_tile.h"
#include "kernels/moe/moe_tile.h"

namespace nibble::kernels {
namespace {

#if defined(__x86_64__)

constexpr std::int64_t kScaleBlock = 32;

void run_bf16_tile(const ExpertTile& tile) {
  GemmTile dense{.x = tile.x,
                 .sums = tile.sums,
                 .num_rows = kTileRows,
                 .num_inputs = tile.num_inputs,
                 .k = tile.cols,
                 .x_stride = tile.x_row_bytes * 8 / dtype_bits(tile.x_dtype),
                 .x_dtype = tile.x_dtype};
  const std::int64_t first = tile.row * tile.cols;
  if (const auto* mxfp4 = std::get_if<Mxfp4Rows>(tile.weight)) {
    dense.weight = mxfp4->blocks + first / 2;
    dense.scales = mxfp4->scales + first / kScaleBlock;
    dense.weight_dtype = DType::kE2M1;
  } else {
    dense.weight = std::get<Bf16Rows>(*tile.weight).values + first;
  }
  gemm_tile_avx512bf16(dense);
}

#endif  // defined(__x86_64__)

}  // namespace

Status moe_cpu(const MoeArgs& args, const Exec& exec) {
  return run_experts(args, exec, {.tile = &split_tile, .widens = true});
}

#if defined(__x86_64__)
Status moe_cpu_avx512bf16(const MoeArgs& args, const Exec& exec) {
  return run_experts(args, exec,
                     {.tile = &run_bf16_tile,
                      .splits_pairs = std::holds_alternative<Mxfp4Rows>(args.gate_up.weight)});
}
#endif

}  // namespace nibble::kernels
