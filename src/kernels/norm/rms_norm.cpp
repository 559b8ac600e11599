#include "kernels/norm/rms_norm.h"

#include "base/error.h"
#include "kernels/common/element.h"
#include "kernels/norm/rms_norm_cpu.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<RmsNormArgs> row;
#include "kernels/rms_norm_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

const Instance<RmsNormArgs> kInstances[] = {
    {.info = {.name = "rms_norm_ref"},
     .accepts = &accepts_all<RmsNormArgs>,
     .run = &run_reference<&rms_norm_ref, RmsNormArgs>},
    {.info = {.name = "rms_norm_cpu", .backend = Backend::kCpu},
     .accepts = &accepts_all<RmsNormArgs>,
     .run = &rms_norm_cpu},
#define NIBBLE_INSTANCE(row) row,
#include "kernels/rms_norm_instances.inc"
#undef NIBBLE_INSTANCE
};

Status validate(const RmsNormArgs& args) {
  if (args.rows < 0 || args.cols <= 0 || args.cols % 8 != 0) {
    return error(Code::kInvalidArgument,
                 "rms_norm: want rows >= 0 and cols a positive multiple of 8, got {} x {}",
                 args.rows, args.cols);
  }
  if (!is_activation_dtype(args.out_dtype)) {
    return error(Code::kUnsupported, "rms_norm: want out f32 or bf16, got {}",
                 dtype_name(args.out_dtype));
  }
  return {};
}

}  // namespace

std::span<const Instance<RmsNormArgs>> rms_norm_instances() { return kInstances; }

std::int64_t rms_norm_bytes(const RmsNormArgs& args) {
  const std::int64_t out_bytes = dtype_bits(args.out_dtype) / 8;
  return std::int64_t{args.rows} * args.cols * (4 + out_bytes) + std::int64_t{4} * args.cols;
}

Status rms_norm(const RmsNormArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  return run_best("rms_norm", rms_norm_instances(), args, exec);
}

}  // namespace nibble::kernels
