#include "kernels/attention/attention.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/attention/attention_cpu.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/common/cache_rows.h"
#include "kernels/common/parallel.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<AttentionArgs> row;
#include "kernels/attention_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

const Instance<AttentionArgs> kInstances[] = {
    {.info = {.name = "attention_ref"},
     .accepts = &accepts_all<AttentionArgs>,
     .run = &run_reference<&attention_ref, AttentionArgs>},
    {.info = {.name = "attention_cpu", .backend = Backend::kCpu},
     .accepts = &accepts_all<AttentionArgs>,
     .run = &attention_cpu},
#define NIBBLE_INSTANCE(row) row,
#include "kernels/attention_instances.inc"
#undef NIBBLE_INSTANCE
};

Status validate(const AttentionArgs& args) {
  if (args.num_kv_heads <= 0 || args.num_heads <= 0 || args.num_heads % args.num_kv_heads != 0) {
    return error(Code::kInvalidArgument,
                 "attention: want num_heads a positive multiple of num_kv_heads, got {} and {}",
                 args.num_heads, args.num_kv_heads);
  }
  if (args.head_dim <= 0 || args.head_dim % 8 != 0 || args.head_dim > 256 || args.page_size <= 0 ||
      args.window < 0) {
    return error(Code::kInvalidArgument,
                 "attention: want head_dim a multiple of 8 up to 256, page_size > 0, window >= 0, "
                 "got {}, {}, {}",
                 args.head_dim, args.page_size, args.window);
  }
  if (!is_activation_dtype(args.q_dtype) || !is_cache_dtype(args.kv_dtype)) {
    return error(Code::kUnsupported,
                 "attention: want q of f32 or bf16 and a cache of f32, bf16 or e4m3, got {} and {}",
                 dtype_name(args.q_dtype), dtype_name(args.kv_dtype));
  }
  if (args.kv_dtype == DType::kE4M3 && (args.k_scales == nullptr || args.v_scales == nullptr)) {
    return error(Code::kInvalidArgument, "attention: want scales with a cache of e4m3, got none");
  }
  return {};
}

Status validate_on_gpu(const AttentionArgs& args) {
  std::int32_t last = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    last = std::max(last, sequence.first_position + sequence.num_rows);
  }
  const std::int64_t wanted = attention_cuda_workspace_bytes(args, 1, last);
  if (static_cast<std::int64_t>(args.workspace.size()) < wanted ||
      args.device_sequences == nullptr) {
    return error(Code::kInvalidArgument,
                 "attention: want device_sequences and a workspace of {} bytes, got {} bytes",
                 wanted, args.workspace.size());
  }
  return {};
}

}  // namespace

std::span<const Instance<AttentionArgs>> attention_instances() { return kInstances; }

std::int64_t attention_workspace_bytes(const AttentionArgs& args, std::int32_t num_rows,
                                       std::int32_t max_position, const Exec& exec) {
  return exec.device == nullptr ? attention_cpu_workspace_bytes(args.head_dim, num_workers(exec))
                                : attention_cuda_workspace_bytes(args, num_rows, max_position);
}

std::int64_t attention_bytes(const AttentionArgs& args) {
  const std::int64_t scale_bytes = args.kv_dtype == DType::kE4M3 ? 1 : 0;
  const std::int64_t kv_row =
      args.num_kv_heads *
      (std::int64_t{args.head_dim} * dtype_bits(args.kv_dtype) / 8 + scale_bytes);
  const std::int64_t q_row =
      std::int64_t{args.num_heads} * args.head_dim * dtype_bits(args.q_dtype) / 8;
  std::int64_t bytes = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    const std::int64_t last = sequence.first_position + sequence.num_rows;
    const std::int64_t first =
        args.window == 0 ? 0 : std::max(0, sequence.first_position - args.window + 1);
    bytes += 2 * (last - first) * kv_row + 2 * std::int64_t{sequence.num_rows} * q_row;
  }
  return bytes;
}

Status attention(const AttentionArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  if (exec.device != nullptr) {
    NIBBLE_RETURN_IF_ERROR(validate_on_gpu(args));
  }
  return run_best("attention", attention_instances(), args, exec);
}

}  // namespace nibble::kernels
