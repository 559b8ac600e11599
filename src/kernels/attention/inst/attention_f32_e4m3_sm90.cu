#include "kernels/attention/attention_plain_launch.cuh"

namespace nibble::kernels {
namespace {

Status run(const AttentionArgs& args, const Exec& exec) {
  return args.q_dtype == DType::kBF16 ? launch_plain<__nv_bfloat16, device::E4m3>(args, exec)
                                      : launch_plain<float, device::E4m3>(args, exec);
}

bool fits(const AttentionArgs& args) {
  return args.kv_dtype == DType::kE4M3 && args.sequences.size() <= 65535;
}

}  // namespace

extern constinit const Instance<AttentionArgs> attention_f32_e4m3_sm90{
    .info = {.name = "attention_f32_e4m3_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &fits,
    .run = &run,
};

}  // namespace nibble::kernels
