#include "kernels/convert/gather_rows.h"

#include "base/error.h"
#include "kernels/common/element.h"
#include "kernels/convert/gather_rows_cpu.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<GatherRowsArgs> row;
#include "kernels/gather_rows_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

Status validate(const GatherRowsArgs& args) {
  if (args.rows < 0 || args.cols <= 0 || args.table_rows <= 0 || !is_activation_dtype(args.dtype)) {
    return error(Code::kInvalidArgument,
                 "gather_rows: want rows >= 0, cols and table_rows > 0 of bf16 or f32, got {} x {} "
                 "of {} rows of {}",
                 args.rows, args.cols, args.table_rows, dtype_name(args.dtype));
  }
  return {};
}

Status validate_ids(const GatherRowsArgs& args) {
  for (std::int32_t row = 0; row < args.rows; ++row) {
    if (args.ids[row] < 0 || args.ids[row] >= args.table_rows) {
      return error(Code::kInvalidArgument, "gather_rows: want ids in 0..{}, got {} in row {}",
                   args.table_rows - 1, args.ids[row], row);
    }
  }
  return {};
}

const Instance<GatherRowsArgs> kInstances[] = {
    {.info = {.name = "gather_rows_ref"},
     .accepts = &accepts_all<GatherRowsArgs>,
     .run = &run_reference<&gather_rows_ref, GatherRowsArgs>},
    {.info = {.name = "gather_rows_cpu", .backend = Backend::kCpu},
     .accepts = &accepts_all<GatherRowsArgs>,
     .run = &gather_rows_cpu},
#define NIBBLE_INSTANCE(row) row,
#include "kernels/gather_rows_instances.inc"
#undef NIBBLE_INSTANCE
};

}  // namespace

std::span<const Instance<GatherRowsArgs>> gather_rows_instances() { return kInstances; }

Status gather_rows_ref(const GatherRowsArgs& args) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  NIBBLE_RETURN_IF_ERROR(validate_ids(args));
  for (std::int32_t row = 0; row < args.rows; ++row) {
    const std::int64_t from = std::int64_t{args.ids[row]} * args.cols;
    const std::int64_t to = std::int64_t{row} * args.cols;
    for (std::int32_t col = 0; col < args.cols; ++col) {
      args.out[to + col] = load_element(args.table, args.dtype, from + col);
    }
  }
  return {};
}

Status gather_rows(const GatherRowsArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  if (exec.device == nullptr) {
    NIBBLE_RETURN_IF_ERROR(validate_ids(args));
  }
  return run_best("gather_rows", gather_rows_instances(), args, exec);
}

}  // namespace nibble::kernels
