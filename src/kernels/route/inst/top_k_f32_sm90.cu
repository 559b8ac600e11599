#include "kernels/common/launch.cuh"
#include "kernels/route/device/top_k.cuh"
#include "kernels/route/top_k.h"

namespace nibble::kernels {
namespace {

template <int kPerLane>
Status launch_top_k(const TopKArgs& args, const Exec& exec) {
  const LaunchShape shape{.grid = dim3(ceil_div(args.rows, device::kTopKWarps)),
                          .block = dim3(32 * device::kTopKWarps),
                          .is_dependent = true};
  return launch("top_k", device::top_k<kPerLane>, shape, exec,
                device::TopKParams{.logits = args.logits,
                                   .ids = args.ids,
                                   .weights = args.weights,
                                   .bad_row = args.bad_row,
                                   .rows = args.rows,
                                   .num_valid_rows = args.num_valid_rows,
                                   .num_experts = args.num_experts,
                                   .top_k = args.top_k});
}

Status run(const TopKArgs& args, const Exec& exec) {
  if (args.num_experts <= 32) {
    return launch_top_k<1>(args, exec);
  }
  return args.num_experts <= 128 ? launch_top_k<4>(args, exec) : launch_top_k<16>(args, exec);
}

bool fits_a_warp(const TopKArgs& args) { return args.num_experts <= 512 && args.top_k <= 32; }

}  // namespace

extern constinit const Instance<TopKArgs> top_k_f32_sm90{
    .info = {.name = "top_k_f32_sm90", .backend = Backend::kCuda, .min_sm = 90, .verified = true},
    .accepts = &fits_a_warp,
    .run = &run,
};

}  // namespace nibble::kernels
