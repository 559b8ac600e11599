#include "kernels/attention/attention_d64_launch.cuh"

namespace nibble::kernels {
namespace {

bool fits(const AttentionArgs& args) { return args.kv_dtype == DType::kBF16 && fits_d64(args); }

}  // namespace

extern constinit const Instance<AttentionArgs> attention_bf16_d64_sm90{
    .info = {.name = "attention_bf16_d64_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &fits,
    .run = &launch_d64<__nv_bfloat16>,
};

}  // namespace nibble::kernels
