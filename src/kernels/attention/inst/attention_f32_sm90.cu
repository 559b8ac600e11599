#include "kernels/attention/attention_plain_launch.cuh"

namespace nibble::kernels {
namespace {

template <typename Q>
Status launch_for_q(const AttentionArgs& args, const Exec& exec) {
  return args.kv_dtype == DType::kBF16 ? launch_plain<Q, __nv_bfloat16>(args, exec)
                                       : launch_plain<Q, float>(args, exec);
}

Status run(const AttentionArgs& args, const Exec& exec) {
  return args.q_dtype == DType::kBF16 ? launch_for_q<__nv_bfloat16>(args, exec)
                                      : launch_for_q<float>(args, exec);
}

bool fits_grid(const AttentionArgs& args) {
  return args.kv_dtype != DType::kE4M3 && args.sequences.size() <= 65535;
}

}  // namespace

extern constinit const Instance<AttentionArgs> attention_f32_sm90{
    .info = {.name = "attention_f32_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &fits_grid,
    .run = &run,
};

}  // namespace nibble::kernels
