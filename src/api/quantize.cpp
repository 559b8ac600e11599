#include "nibble/quantize.h"

#include <memory>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/convert/fp4_values.h"
#include "kernels/quantize/quantize.h"

namespace nibble {
namespace {

// Public and inner enumerations list the same things in the same order; checked where they meet.
template <typename To, typename From>
constexpr To as(From value) {
  return static_cast<To>(value);
}

static_assert(as<QuantFormat>(kernels::QuantFormat::kMxfp8) == QuantFormat::kMxfp8);
static_assert(as<ScaleRounding>(formats::ScaleRounding::kNearestEven) ==
              ScaleRounding::kNearestEven);
static_assert(as<ScaleRounding>(formats::ScaleRounding::kOcpFloor) == ScaleRounding::kOcpFloor);
static_assert(as<ScaleLayout>(formats::ScaleLayout::kHopper) == ScaleLayout::kHopper);
static_assert(as<ScaleLayout>(formats::ScaleLayout::k8x4) == ScaleLayout::k8x4);
static_assert(as<ValueLayout>(formats::ValueLayout::kBlackwell) == ValueLayout::kBlackwell);
static_assert(as<ValueLayout>(formats::ValueLayout::kHopperPairs) == ValueLayout::kHopperPairs);
static_assert(as<GateUpOrder>(formats::GateUpOrder::kUpFirstHalves) == GateUpOrder::kUpFirstHalves);
static_assert(as<GateUpOrder>(formats::GateUpOrder::kUpInterleaved) == GateUpOrder::kUpInterleaved);
static_assert(as<GlobalScale>(kernels::GlobalScale::kPowerOfTwo) == GlobalScale::kPowerOfTwo);
static_assert(as<QuantBackend>(kernels::Backend::kCuda) == QuantBackend::kCuda);

// An enumeration from C or a cast may hold anything.
template <typename Enum>
Status check_enum(const char* name, Enum value, Enum last) {
  if (value > last) {
    return error(Code::kInvalidArgument, "{}: want 0 to {}, got {}", name, static_cast<int>(last),
                 static_cast<int>(value));
  }
  return {};
}

DType dtype_of(QuantDtype dtype) {
  return dtype == QuantDtype::kF32   ? DType::kF32
         : dtype == QuantDtype::kF16 ? DType::kF16
                                     : DType::kBF16;
}

Status check_options(const QuantizeOptions& options, QuantDtype dtype) {
  NIBBLE_RETURN_IF_ERROR(check_enum("format", options.format, QuantFormat::kMxfp8));
  NIBBLE_RETURN_IF_ERROR(check_enum("rounding", options.rounding, ScaleRounding::kNearestEven));
  NIBBLE_RETURN_IF_ERROR(check_enum("scale_layout", options.scale_layout, ScaleLayout::kHopper));
  NIBBLE_RETURN_IF_ERROR(
      check_enum("global_scale", options.global_scale, GlobalScale::kPowerOfTwo));
  NIBBLE_RETURN_IF_ERROR(check_enum("backend", options.backend, QuantBackend::kCuda));
  NIBBLE_RETURN_IF_ERROR(check_enum("dtype", dtype, QuantDtype::kF16));
  if (options.num_threads < 0) {
    return error(Code::kInvalidArgument, "num_threads: want 0 or more, got {}",
                 options.num_threads);
  }
  return {};
}

kernels::QuantizeOptions kernel_options(const QuantizeOptions& options) {
  kernels::QuantizeOptions out;
  out.format = as<kernels::QuantFormat>(options.format);
  out.rounding = as<formats::ScaleRounding>(options.rounding);
  out.scale_layout = as<formats::ScaleLayout>(options.scale_layout);
  out.order = options.is_column_major ? kernels::MatrixOrder::kColumnMajor
                                      : kernels::MatrixOrder::kRowMajor;
  out.global_scale = as<kernels::GlobalScale>(options.global_scale);
  out.has_global_scale_per_expert = options.has_global_scale_per_expert;
  out.row_multiple = options.row_multiple;
  out.col_multiple = options.col_multiple;
  out.backend = as<kernels::Backend>(options.backend);
  return out;
}

kernels::QuantizeArgs kernel_args(const QuantizeCall& call) {
  kernels::QuantizeArgs args;
  args.x = call.x;
  args.values = call.values;
  args.scales = call.scales;
  args.global_scales = call.global_scales;
  args.num_experts = call.num_experts;
  args.rows = call.rows;
  args.cols = call.cols;
  args.dtype = dtype_of(call.dtype);
  args.options = kernel_options(call.options);
  return args;
}

// Workers for one call, where the backend uses any.
std::unique_ptr<ThreadPool> workers(const QuantizeOptions& options) {
  return options.backend == QuantBackend::kCpu ? std::make_unique<ThreadPool>(options.num_threads)
                                               : nullptr;
}

Status check_pointers(const char* what, const void* from, const void* to, std::int64_t bytes) {
  if (bytes > 0 && (from == nullptr || to == nullptr)) {
    return error(Code::kInvalidArgument, "{}: want from and to for {} bytes, got a null pointer",
                 what, bytes);
  }
  return {};
}

Status check_extents(const char* what, std::int64_t rows, std::int64_t cols) {
  if (rows < 0 || cols < 0) {
    return error(Code::kInvalidArgument, "{}: want extents of 0 or more, got [{}, {}]", what, rows,
                 cols);
  }
  return {};
}

}  // namespace

Result<QuantizedSize> quantized_size(const QuantizeCall& call) {
  NIBBLE_RETURN_IF_ERROR(check_options(call.options, call.dtype));
  NIBBLE_ASSIGN_OR_RETURN(const kernels::QuantizedExtent extent,
                          kernels::quantized_extent(kernel_args(call)));
  return QuantizedSize{extent.rows.value, extent.cols.value, extent.value_bytes,
                       extent.scale_bytes};
}

Result<QuantizeCounts> quantize(const QuantizeCall& call) {
  NIBBLE_RETURN_IF_ERROR(check_options(call.options, call.dtype));
  const std::unique_ptr<ThreadPool> pool = workers(call.options);
  NIBBLE_ASSIGN_OR_RETURN(const kernels::QuantizeReport report,
                          kernels::quantize(kernel_args(call), {pool.get(), nullptr}));
  QuantizeCounts counts;
  counts.num_nan = report.num_nan;
  counts.num_inf = report.num_inf;
  counts.first_non_finite = report.first_non_finite;
  counts.num_poisoned_blocks = report.num_poisoned_blocks;
  counts.num_saturated = report.num_saturated;
  counts.num_zeroed_blocks = report.num_zeroed_blocks;
  return counts;
}

Status dequantize(const DequantizeCall& call) {
  NIBBLE_RETURN_IF_ERROR(check_options(call.options, call.dtype));
  kernels::DequantizeArgs args;
  args.values = call.values;
  args.scales = call.scales;
  args.global_scales = call.global_scales;
  args.out = call.out;
  args.num_experts = call.num_experts;
  args.rows = call.rows;
  args.cols = call.cols;
  args.dtype = dtype_of(call.dtype);
  args.options = kernel_options(call.options);
  const std::unique_ptr<ThreadPool> pool = workers(call.options);
  return kernels::dequantize(args, {pool.get(), nullptr});
}

std::int64_t value_layout_bytes(ValueLayout layout, std::int64_t rows, std::int64_t cols) {
  return formats::value_extent(as<formats::ValueLayout>(layout), formats::LogicalRows(rows),
                               formats::LogicalCols(cols))
      .bytes();
}

Status convert_value_layout(const ValueLayoutCall& call) {
  NIBBLE_RETURN_IF_ERROR(check_enum("from_layout", call.from_layout, ValueLayout::kBlackwell));
  NIBBLE_RETURN_IF_ERROR(check_enum("to_layout", call.to_layout, ValueLayout::kBlackwell));
  NIBBLE_RETURN_IF_ERROR(check_extents("values", call.rows, call.cols));
  NIBBLE_RETURN_IF_ERROR(check_pointers("values", call.from, call.to,
                                        value_layout_bytes(call.to_layout, call.rows, call.cols)));
  return kernels::convert_values(
      {call.from, call.to, formats::LogicalRows(call.rows), formats::LogicalCols(call.cols),
       as<formats::ValueLayout>(call.from_layout), as<formats::ValueLayout>(call.to_layout)});
}

std::int64_t scale_layout_bytes(ScaleLayout layout, std::int64_t rows, std::int64_t blocks) {
  return formats::scale_extent(as<formats::ScaleLayout>(layout), formats::LogicalRows(rows),
                               formats::LogicalBlocks(blocks))
      .bytes();
}

Status convert_scale_layout(const ScaleLayoutCall& call) {
  NIBBLE_RETURN_IF_ERROR(check_enum("from_layout", call.from_layout, ScaleLayout::kHopper));
  NIBBLE_RETURN_IF_ERROR(check_enum("to_layout", call.to_layout, ScaleLayout::kHopper));
  NIBBLE_RETURN_IF_ERROR(check_extents("scales", call.rows, call.blocks));
  NIBBLE_RETURN_IF_ERROR(check_pointers(
      "scales", call.from, call.to, scale_layout_bytes(call.to_layout, call.rows, call.blocks)));
  return kernels::convert_scales(
      {call.from, call.to, formats::LogicalRows(call.rows), formats::LogicalBlocks(call.blocks),
       as<formats::ScaleLayout>(call.from_layout), as<formats::ScaleLayout>(call.to_layout)});
}

Status convert_gate_up_order(const GateUpOrderCall& call) {
  NIBBLE_RETURN_IF_ERROR(check_enum("from_order", call.from_order, GateUpOrder::kUpFirstHalves));
  NIBBLE_RETURN_IF_ERROR(check_enum("to_order", call.to_order, GateUpOrder::kUpFirstHalves));
  NIBBLE_RETURN_IF_ERROR(check_extents("gate/up rows", call.half, call.row_bytes));
  NIBBLE_RETURN_IF_ERROR(
      check_pointers("gate/up rows", call.from, call.to, 2 * call.to_padded_half * call.row_bytes));
  return kernels::convert_gate_up(
      {call.from, call.to, call.row_bytes, formats::LogicalRows(call.half),
       formats::PaddedRows(call.from_padded_half), formats::PaddedRows(call.to_padded_half),
       as<formats::GateUpOrder>(call.from_order), as<formats::GateUpOrder>(call.to_order)});
}

}  // namespace nibble
