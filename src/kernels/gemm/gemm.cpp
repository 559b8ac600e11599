#include "kernels/gemm/gemm.h"

#include "base/error.h"
#include "kernels/common/element.h"
#include "kernels/gemm/gemm_cpu.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<GemmArgs> row;
#include "kernels/gemm_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

[[maybe_unused]] bool is_bf16(const GemmArgs& args) {
  return args.x_dtype == DType::kBF16 && args.weight_dtype == DType::kBF16;
}

const Instance<GemmArgs> kInstances[] = {
    {.info = {.name = "gemm_ref"},
     .accepts = &accepts_all<GemmArgs>,
     .run = &run_reference<&gemm_ref, GemmArgs>},
    {.info = {.name = "gemm_cpu", .backend = Backend::kCpu},
     .accepts = &accepts_all<GemmArgs>,
     .run = &gemm_cpu},
#if defined(__x86_64__)
    {.info = {.name = "gemm_cpu_avx512bf16", .backend = Backend::kCpu, .isa = CpuIsa::kAvx512Bf16},
     .accepts = &is_bf16,
     .run = &gemm_cpu_avx512bf16},
#endif
#define NIBBLE_INSTANCE(row) row,
#include "kernels/gemm_instances.inc"
#undef NIBBLE_INSTANCE
};

std::int64_t total_n(const GemmArgs& args) {
  std::int64_t n = 0;
  for (const GemmPart& part : args.parts) {
    n += part.n;
  }
  return n;
}

Status validate(const GemmArgs& args) {
  if (args.rows < 0 || args.k <= 0 || args.out_stride < total_n(args)) {
    return error(Code::kInvalidArgument,
                 "gemm: want rows >= 0, k > 0, out_stride >= {}, got {}, {}, {}", total_n(args),
                 args.rows, args.k, args.out_stride);
  }
  if (!is_activation_dtype(args.x_dtype) || !is_activation_dtype(args.weight_dtype)) {
    return error(Code::kUnsupported, "gemm: want f32 or bf16, got x {} and weight {}",
                 dtype_name(args.x_dtype), dtype_name(args.weight_dtype));
  }
  return {};
}

}  // namespace

std::span<const Instance<GemmArgs>> gemm_instances() { return kInstances; }

std::int64_t gemm_bytes(const GemmArgs& args) {
  const std::int64_t n = total_n(args);
  const std::int64_t x_bytes = std::int64_t{args.rows} * args.k * dtype_bits(args.x_dtype) / 8;
  const std::int64_t out_bytes = std::int64_t{args.rows} * n * (args.accumulate ? 8 : 4);
  return n * args.k * dtype_bits(args.weight_dtype) / 8 + x_bytes + out_bytes;
}

std::int64_t gemm_flops(const GemmArgs& args) {
  return 2 * std::int64_t{args.rows} * args.k * total_n(args);
}

Status gemm(const GemmArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  return run_best("gemm", gemm_instances(), args, exec);
}

}  // namespace nibble::kernels
