#include <variant>

#include "kernels/common/launch.cuh"
#include "kernels/moe/device/moe_plain.cuh"
#include "kernels/moe/moe.h"

namespace nibble::kernels {
namespace {

device::PlainExperts plain_experts(const ExpertMatrix& matrix) {
  device::PlainExperts out{};
  if (const auto* rows = std::get_if<Mxfp4Rows>(&matrix.weight)) {
    out.blocks = rows->blocks;
    out.scales = rows->scales;
  } else if (const auto* values = std::get_if<Bf16Rows>(&matrix.weight)) {
    out.values = reinterpret_cast<const __nv_bfloat16*>(values->values);
  }
  out.bias = reinterpret_cast<const __nv_bfloat16*>(matrix.bias);
  return out;
}

template <typename X>
Status launch_plain(const MoeArgs& args, const Exec& exec) {
  const device::MoePlainParams<X> params{.x = static_cast<const X*>(args.x),
                                         .ids = args.ids,
                                         .weights = args.weights,
                                         .out = args.out,
                                         .h = reinterpret_cast<float*>(args.workspace.data()),
                                         .gate_up = plain_experts(args.gate_up),
                                         .down = plain_experts(args.down),
                                         .hidden = args.hidden,
                                         .intermediate = args.intermediate,
                                         .top_k = args.top_k,
                                         .alpha = args.alpha,
                                         .limit = args.limit};
  const auto tokens = static_cast<unsigned>(args.num_tokens);
  const auto shape = [&](int rows, unsigned inputs) {
    return LaunchShape{.grid = dim3(ceil_div(rows, device::kMoePlainWarps), inputs),
                       .block = dim3(32 * device::kMoePlainWarps),
                       .is_dependent = true};
  };
  NIBBLE_RETURN_IF_ERROR(launch("moe_plain_gate_up", device::moe_plain_gate_up<X>,
                                shape(args.intermediate, tokens * args.top_k), exec, params));
  return launch("moe_plain_down", device::moe_plain_down<X>, shape(args.hidden, tokens), exec,
                params);
}

Status run(const MoeArgs& args, const Exec& exec) {
  return args.x_dtype == DType::kBF16 ? launch_plain<__nv_bfloat16>(args, exec)
                                      : launch_plain<float>(args, exec);
}

bool has_plain_rows(const ExpertMatrix& matrix) {
  return std::holds_alternative<Mxfp4Rows>(matrix.weight) ||
         std::holds_alternative<Bf16Rows>(matrix.weight);
}

bool fits(const MoeArgs& args) {
  return has_plain_rows(args.gate_up) && has_plain_rows(args.down) &&
         std::int64_t{args.num_tokens} * args.top_k <= 65535;
}

}  // namespace

extern constinit const Instance<MoeArgs> moe_f32_sm90{
    .info = {.name = "moe_f32_sm90", .backend = Backend::kCuda, .min_sm = 90, .verified = true},
    .accepts = &fits,
    .run = &run,
};

}  // namespace nibble::kernels
