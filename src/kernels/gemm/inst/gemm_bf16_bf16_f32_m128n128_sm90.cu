#include "kernels/gemm/device/gemm_many_rows.cuh"
#include "kernels/gemm/gemm_launch.cuh"

namespace nibble::kernels {
namespace {

Status run(const GemmArgs& args, const Exec& exec) {
  using Config = device::ManyRows;
  const auto tiled = tile_parts<__nv_bfloat16>(args, Config::kTileN);
  const int row_tiles = static_cast<int>(ceil_div(args.rows, Config::kTileM));
  static const Status kAllowed =
      allow_shared_bytes("gemm_many_rows", device::gemm_many_rows, sizeof(device::ManyRowsShared));
  NIBBLE_RETURN_IF_ERROR(Status(kAllowed));
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(row_tiles * tiled.num_tiles)),
                          .block = dim3(Config::kThreads),
                          .shared_bytes = sizeof(device::ManyRowsShared),
                          .is_dependent = true};
  return launch("gemm_many_rows", device::gemm_many_rows, shape, exec, tiled.params, row_tiles,
                tiled.num_tiles);
}

}  // namespace

extern constinit const Instance<GemmArgs> gemm_bf16_bf16_f32_m128n128_sm90{
    .info = {.name = "gemm_bf16_bf16_f32_m128n128_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &fits_matrix_kernels,
    .run = &run,
};

}  // namespace nibble::kernels
