#include "kernels/gemm/device/gemm_few_rows.cuh"
#include "kernels/gemm/gemm_launch.cuh"

namespace nibble::kernels {
namespace {

// More are faster through tiles: bench_cuda, H200, 64 rows: 201088 x 2880 300 us against 769,
// 5120 x 2880 13 (of 128 rows) against 25, 2880 x 4096 13 against 29, the router 11 against 18.
constexpr std::int32_t kMostRows = 32;

template <int kTiles>
Status launch_few(const GemmArgs& args, const Exec& exec) {
  const auto tiled = tile_parts<__nv_bfloat16>(args, device::FewRows::kTileN);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.rows > 0 ? tiled.num_tiles : 0)),
                          .block = dim3(device::FewRows::kThreads),
                          .is_dependent = true};
  return launch("gemm_few_rows", device::gemm_few_rows<kTiles>, shape, exec, tiled.params);
}

Status run(const GemmArgs& args, const Exec& exec) {
  if (args.rows <= 8) {
    return launch_few<1>(args, exec);
  }
  if (args.rows <= 16) {
    return launch_few<2>(args, exec);
  }
  return launch_few<4>(args, exec);
}

bool fits(const GemmArgs& args) { return fits_matrix_kernels(args) && args.rows <= kMostRows; }

}  // namespace

extern constinit const Instance<GemmArgs> gemm_bf16_bf16_f32_n16_sm90{
    .info = {.name = "gemm_bf16_bf16_f32_n16_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &fits,
    .run = &run,
};

}  // namespace nibble::kernels
