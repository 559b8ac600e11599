#include "kernels/moe/moe_tiles_launch.cuh"

namespace nibble::kernels {

using Kernels = MoeGroupedKernels<MoeGrouped48>;

extern constinit const Instance<MoeTilesArgs> moe_grouped_bf16_mxfp4_f32_n48_sm90{
    .info = {.name = "moe_grouped_bf16_mxfp4_f32_n48_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90},
    .accepts = &Kernels::accepts,
    .run = &launch_moe_tiles<Kernels>,
};

}  // namespace nibble::kernels
