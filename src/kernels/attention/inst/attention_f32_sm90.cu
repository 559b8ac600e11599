#include <algorithm>

#include "kernels/attention/attention_launch.cuh"
#include "kernels/attention/device/attention_plain.cuh"

namespace nibble::kernels {
namespace {

template <typename Q, typename Kv>
Status launch_plain(const AttentionArgs& args, const Exec& exec) {
  std::int32_t rows = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    rows = std::max(rows, sequence.num_rows);
  }
  const LaunchShape shape{.grid = dim3(ceil_div(rows, device::kPlainAttentionWarps),
                                       static_cast<unsigned>(args.num_heads),
                                       static_cast<unsigned>(args.sequences.size())),
                          .block = dim3(32 * device::kPlainAttentionWarps),
                          .is_dependent = true};
  return launch("attention_plain", device::attention_plain<Q, Kv>, shape, exec,
                attention_params(args, {}));
}

template <typename Q>
Status launch_for_q(const AttentionArgs& args, const Exec& exec) {
  return args.kv_dtype == DType::kBF16 ? launch_plain<Q, __nv_bfloat16>(args, exec)
                                       : launch_plain<Q, float>(args, exec);
}

Status run(const AttentionArgs& args, const Exec& exec) {
  return args.q_dtype == DType::kBF16 ? launch_for_q<__nv_bfloat16>(args, exec)
                                      : launch_for_q<float>(args, exec);
}

bool fits_grid(const AttentionArgs& args) { return args.sequences.size() <= 65535; }

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
