#include "kernels/moe/moe.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kernels/common/element.h"
#include "kernels/moe/moe_cpu.h"
#include "kernels/moe/moe_workspace.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<MoeArgs> row;
#include "kernels/moe_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

bool is_given(const MoeArgs& args) { return args.inputs == ExpertInputs::kGiven; }

bool has_mxfp4(const MoeArgs& args) {
  return std::holds_alternative<Mxfp4Rows>(args.gate_up.weight) &&
         std::holds_alternative<Mxfp4Rows>(args.down.weight);
}
bool is_int8(const MoeArgs& args) { return !is_given(args) && has_mxfp4(args); }

// Both operands are bf16 numbers, the weights in one form.
[[maybe_unused]] bool is_bf16(const MoeArgs& args) {
  return is_given(args) && args.x_dtype == DType::kBF16 &&
         !std::holds_alternative<Nvfp4Rows>(args.gate_up.weight) &&
         args.gate_up.weight.index() == args.down.weight.index();
}

const Instance<MoeArgs> kInstances[] = {
    {.info = {.name = "moe_ref"},
     .accepts = &accepts_all<MoeArgs>,
     .run = &run_reference<&moe_ref, MoeArgs>},
    {.info = {.name = "moe_cpu", .backend = Backend::kCpu}, .accepts = &is_given, .run = &moe_cpu},
    {.info = {.name = "moe_cpu_int8", .backend = Backend::kCpu},
     .accepts = &is_int8,
     .run = &moe_cpu_int8},
#if defined(__x86_64__)
    {.info = {.name = "moe_cpu_avx512bf16", .backend = Backend::kCpu, .isa = CpuIsa::kAvx512Bf16},
     .accepts = &is_bf16,
     .run = &moe_cpu_avx512bf16},
    {.info = {.name = "moe_cpu_int8_avx512vnni",
              .backend = Backend::kCpu,
              .isa = CpuIsa::kAvx512Vnni},
     .accepts = &is_int8,
     .run = &moe_cpu_int8_avx512vnni},
#endif
#define NIBBLE_INSTANCE(row) row,
#include "kernels/moe_instances.inc"
#undef NIBBLE_INSTANCE
};

// A GPU's ids are not read here: they come from top_k() of the same step.
Status validate_ids(const MoeArgs& args) {
  for (std::int64_t i = 0; i < std::int64_t{args.num_tokens} * args.top_k; ++i) {
    if (args.ids[i] < 0 || args.ids[i] >= args.num_experts) {
      return error(Code::kInvalidArgument, "moe: want expert ids in 0..{}, got {} for token {}",
                   args.num_experts - 1, args.ids[i], i / args.top_k);
    }
  }
  return {};
}

Status validate(const MoeArgs& args) {
  if (args.num_tokens < 0) {
    return error(Code::kInvalidArgument, "moe: want num_tokens >= 0, got {}", args.num_tokens);
  }
  if (args.hidden <= 0 || args.hidden % 32 != 0 || args.intermediate <= 0 ||
      args.intermediate % 32 != 0) {
    return error(Code::kInvalidArgument,
                 "moe: want hidden and intermediate positive multiples of 32, got {} and {}",
                 args.hidden, args.intermediate);
  }
  if (args.top_k < 1 || args.num_experts < 1) {
    return error(Code::kInvalidArgument, "moe: want at least 1 expert a token, got {} of {}",
                 args.top_k, args.num_experts);
  }
  if (!is_activation_dtype(args.x_dtype)) {
    return error(Code::kUnsupported, "moe: want x f32 or bf16, got {}", dtype_name(args.x_dtype));
  }
  if (!is_given(args) && !has_mxfp4(args)) {
    return error(Code::kUnsupported, "moe: want experts of MXFP4 for inputs of int8, got others");
  }
  return {};
}

Status validate_workspace(const MoeArgs& args) {
  const std::int64_t wanted = moe_workspace_bytes(args, args.num_tokens);
  if (static_cast<std::int64_t>(args.workspace.size()) < wanted) {
    return error(Code::kInvalidArgument, "moe: want a workspace of {} bytes, got {}", wanted,
                 args.workspace.size());
  }
  return {};
}

std::int64_t matrix_row_bytes(const ExpertRows& rows, std::int64_t cols) {
  return std::holds_alternative<Mxfp4Rows>(rows)   ? cols / 32 * 17
         : std::holds_alternative<Nvfp4Rows>(rows) ? cols / 16 * 9
                                                   : cols * 2;
}

}  // namespace

std::span<const Instance<MoeArgs>> moe_instances() { return kInstances; }

std::int64_t moe_bytes(const MoeArgs& args) {
  std::vector<bool> is_used(static_cast<std::size_t>(args.num_experts), false);
  for (std::int64_t i = 0; i < std::int64_t{args.num_tokens} * args.top_k; ++i) {
    is_used[static_cast<std::size_t>(args.ids[i])] = true;
  }
  const std::int64_t used = std::count(is_used.begin(), is_used.end(), true);
  const std::int64_t gate_up = std::int64_t{2} * args.intermediate *
                               (matrix_row_bytes(args.gate_up.weight, args.hidden) + 2);
  const std::int64_t down =
      args.hidden * (matrix_row_bytes(args.down.weight, args.intermediate) + 2);
  return used * (gate_up + down);
}

std::int64_t moe_flops(const MoeArgs& args) {
  return 6 * std::int64_t{args.num_tokens} * args.top_k * args.hidden * args.intermediate;
}

std::int64_t moe_workspace_bytes(const MoeArgs& args, std::int32_t num_tokens) {
  MoeArgs sizes = args;
  sizes.workspace = {};
  sizes.x_dtype = DType::kF32;  // the widest that a kernel keeps
  return lay_out_workspace(sizes, num_tokens).bytes;
}

Status moe(const MoeArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  if (exec.device != nullptr && !is_given(args)) {
    return error(Code::kUnsupported, "moe: want a processor for inputs of int8, got {}",
                 exec.device->name);
  }
  if (exec.device == nullptr) {
    NIBBLE_RETURN_IF_ERROR(validate_ids(args));
  }
  NIBBLE_RETURN_IF_ERROR(validate_workspace(args));
  return run_best("moe", moe_instances(), args, exec);
}

}  // namespace nibble::kernels
