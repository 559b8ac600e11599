#include "kernels/common/launch.cuh"
#include "kernels/norm/device/rms_norm.cuh"
#include "kernels/norm/rms_norm.h"

namespace nibble::kernels {
namespace {

template <typename Out>
Status launch_rms_norm(const RmsNormArgs& args, const Exec& exec) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.rows)),
                          .block = dim3(device::kNormThreads),
                          .is_dependent = true};
  return launch("rms_norm", device::rms_norm<Out>, shape, exec, args.x, args.weight,
                static_cast<Out*>(args.out), args.cols, args.eps);
}

Status run(const RmsNormArgs& args, const Exec& exec) {
  return args.out_dtype == DType::kBF16 ? launch_rms_norm<__nv_bfloat16>(args, exec)
                                        : launch_rms_norm<float>(args, exec);
}

}  // namespace

extern constinit const Instance<RmsNormArgs> rms_norm_f32_sm90{
    .info = {.name = "rms_norm_f32_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &accepts_all<RmsNormArgs>,
    .run = &run,
};

}  // namespace nibble::kernels
