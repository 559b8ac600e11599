#include "kernels/decode/decode_launch.cuh"

namespace nibble::kernels {
namespace {

bool accepts(const DecodeStepArgs& args) { return args.sizes.num_blocks > 0; }

}  // namespace

extern constinit const Instance<DecodeStepArgs> decode_step_bf16_mxfp4_sm90{
    .info = {.name = "decode_step_bf16_mxfp4_sm90", .backend = Backend::kCuda, .min_sm = 90},
    .accepts = &accepts,
    .run = &launch_decode_step,
};

}  // namespace nibble::kernels
