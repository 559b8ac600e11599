#include "kernels/gemm/device/gemm_few_rows.cuh"
#include "kernels/gemm/gemm_launch.cuh"

namespace nibble::kernels {
namespace {

constexpr std::int32_t kMostRows = 64;
// With more rows than kFewRows, weights that fill the device with tiles of 128 rows are faster
// through those: bench_cuda, H200, 64 rows: 201088 x 2880 308 us against 769. Smaller ones are too
// (5120 x 2880 17.5 against 24.7, 2880 x 4096 25.8 against 29.3), but for the router (21.1 against
// 18.4); whole steps of 33 to 64 sequences were not measured with that.
constexpr std::int32_t kFewRows = 32;
constexpr std::int64_t kManyWeightRows = std::int64_t{128} * 132;

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
  return args.rows <= 32 ? launch_few<4>(args, exec) : launch_few<8>(args, exec);
}

bool fits(const GemmArgs& args) {
  std::int64_t n = 0;
  for (const GemmPart& part : args.parts) {
    n += part.n;
  }
  return fits_matrix_kernels(args) && args.rows <= (n < kManyWeightRows ? kMostRows : kFewRows);
}

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
