#include "kernels/attention/attention_d64_launch.cuh"

namespace nibble::kernels {
namespace {

bool fits(const AttentionArgs& args) { return args.kv_dtype == DType::kE4M3 && fits_d64(args); }

}  // namespace

extern constinit const Instance<AttentionArgs> attention_bf16_e4m3_d64_sm90{
    .info = {.name = "attention_bf16_e4m3_d64_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &fits,
    .run = &launch_d64<device::E4m3>,
};

}  // namespace nibble::kernels
