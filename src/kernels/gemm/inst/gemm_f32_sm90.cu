#include "kernels/gemm/device/gemm_plain.cuh"
#include "kernels/gemm/gemm_launch.cuh"

namespace nibble::kernels {
namespace {

template <typename X, typename W>
Status launch_plain(const GemmArgs& args, const Exec& exec) {
  const auto tiled = tile_parts<W>(args, device::kPlainWarps);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(tiled.num_tiles), ceil_div(args.rows, device::kPlainRows)),
      .block = dim3(32 * device::kPlainWarps),
      .is_dependent = true};
  return launch("gemm_plain", device::gemm_plain<X, W>, shape, exec, tiled.params);
}

template <typename X>
Status launch_for_x(const GemmArgs& args, const Exec& exec) {
  return args.weight_dtype == DType::kBF16 ? launch_plain<X, __nv_bfloat16>(args, exec)
                                           : launch_plain<X, float>(args, exec);
}

Status run(const GemmArgs& args, const Exec& exec) {
  return args.x_dtype == DType::kBF16 ? launch_for_x<__nv_bfloat16>(args, exec)
                                      : launch_for_x<float>(args, exec);
}

bool fits(const GemmArgs& args) {
  return args.parts.size() <= device::kMaxGemmParts && args.rows <= 65535 * device::kPlainRows;
}

}  // namespace

extern constinit const Instance<GemmArgs> gemm_f32_sm90{
    .info = {.name = "gemm_f32_sm90", .backend = Backend::kCuda, .min_sm = 90, .verified = true},
    .accepts = &fits,
    .run = &run,
};

}  // namespace nibble::kernels
