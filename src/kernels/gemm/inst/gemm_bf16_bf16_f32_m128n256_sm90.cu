#include "kernels/common/tensor_map.cuh"
#include "kernels/gemm/device/gemm_wgmma.cuh"
#include "kernels/gemm/gemm_launch.cuh"
#include "kernels/gemm/gemm_plan.h"

namespace nibble::kernels {
namespace {

template <int kTileN, int kTileM = 128>
Status launch_wide(const GemmArgs& args, const Exec& exec) {
  using Config = device::WideConfig<kTileN, kTileM>;
  constexpr std::size_t kShared = sizeof(device::WideShared<Config>);
  static const Status kAllowed =
      allow_shared_bytes("gemm_wide", device::gemm_wide<Config>, kShared);
  NIBBLE_RETURN_IF_ERROR(Status(kAllowed));
  const auto tiled = tile_parts<__nv_bfloat16>(args, kTileN);
  device::WideParams params{.gemm = tiled.params,
                            .row_tiles = static_cast<int>(ceil_div(args.rows, Config::kTileM)),
                            .n_tiles = tiled.num_tiles};
  const int tiles = params.row_tiles * params.n_tiles;
  if (tiles == 0) {
    return {};
  }
  NIBBLE_RETURN_IF_ERROR(map_matrix(args.x, args.rows, args.k, Config::kTileM, &params.x));
  for (int i = 0; i < tiled.params.num_parts; ++i) {
    NIBBLE_RETURN_IF_ERROR(
        map_matrix(tiled.params.weight[i], tiled.params.n[i], args.k, kTileN, &params.weight[i]));
  }
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(std::min(tiles, exec.device->num_sms))),
      .block = dim3(Config::kThreads),
      .shared_bytes = kShared,
      .is_dependent = true};
  return launch("gemm_wide", device::gemm_wide<Config>, shape, exec, params);
}

Status run(const GemmArgs& args, const Exec& exec) {
  const GemmTileSize size = gemm_tile_size(args.rows, args.parts, exec.device->num_sms);
  switch (size.n) {
    case 32: return size.rows == 64 ? launch_wide<32, 64>(args, exec) : launch_wide<32>(args, exec);
    case 64: return launch_wide<64>(args, exec);
    case 96: return launch_wide<96>(args, exec);
    case 128: return launch_wide<128>(args, exec);
    case 192: return launch_wide<192>(args, exec);
    default: return launch_wide<256>(args, exec);
  }
}

}  // namespace

extern constinit const Instance<GemmArgs> gemm_bf16_bf16_f32_m128n256_sm90{
    .info = {.name = "gemm_bf16_bf16_f32_m128n256_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &fits_matrix_kernels,
    .run = &run,
};

}  // namespace nibble::kernels
