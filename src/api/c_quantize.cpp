#include "api/c_status.h"
#include "nibble/c_api.h"
#include "nibble/quantize.h"

namespace nibble::c_api {
namespace {

Status read_options(const nibble_quantize_args& args, QuantDtype& dtype, QuantizeOptions& options) {
  NIBBLE_RETURN_IF_ERROR(read_enum(args.dtype, QuantDtype::kF16, "dtype", dtype));
  NIBBLE_RETURN_IF_ERROR(read_enum(args.format, QuantFormat::kMxfp8, "format", options.format));
  NIBBLE_RETURN_IF_ERROR(
      read_enum(args.rounding, ScaleRounding::kNearestEven, "rounding", options.rounding));
  NIBBLE_RETURN_IF_ERROR(
      read_enum(args.scale_layout, ScaleLayout::kHopper, "scale_layout", options.scale_layout));
  NIBBLE_RETURN_IF_ERROR(
      read_enum(args.global_scale, GlobalScale::kPowerOfTwo, "global_scale", options.global_scale));
  NIBBLE_RETURN_IF_ERROR(read_enum(args.backend, QuantBackend::kCuda, "backend", options.backend));
  options.has_global_scale_per_expert = args.has_global_scale_per_expert != 0;
  options.is_column_major = args.is_column_major != 0;
  options.row_multiple = args.row_multiple;
  options.col_multiple = args.col_multiple;
  options.num_threads = args.num_threads;
  return {};
}

Result<QuantizeCall> quantize_call(const nibble_quantize_args& args) {
  QuantizeCall call;
  NIBBLE_RETURN_IF_ERROR(read_options(args, call.dtype, call.options));
  call.x = args.dense;
  call.values = args.values;
  call.scales = args.scales;
  call.global_scales = args.global_scales;
  call.num_experts = args.num_experts;
  call.rows = args.rows;
  call.cols = args.cols;
  return call;
}

Result<QuantizedSize> sizes(const nibble_quantize_args& args) {
  NIBBLE_ASSIGN_OR_RETURN(const QuantizeCall call, quantize_call(args));
  return quantized_size(call);
}

Result<QuantizeCounts> quantize_dense(const nibble_quantize_args& args) {
  NIBBLE_ASSIGN_OR_RETURN(const QuantizeCall call, quantize_call(args));
  return quantize(call);
}

Status dequantize_values(const nibble_quantize_args& args) {
  DequantizeCall call;
  NIBBLE_RETURN_IF_ERROR(read_options(args, call.dtype, call.options));
  call.values = args.values;
  call.scales = args.scales;
  call.global_scales = args.global_scales;
  call.out = args.dense;
  call.num_experts = args.num_experts;
  call.rows = args.rows;
  call.cols = args.cols;
  return dequantize(call);
}

}  // namespace
}  // namespace nibble::c_api

namespace c_api = nibble::c_api;

// The enumerators of both headers are the same numbers.
static_assert(static_cast<int>(nibble::QuantFormat::kMxfp8) == NIBBLE_MXFP8);
static_assert(static_cast<int>(nibble::QuantFormat::kNvfp4) == NIBBLE_NVFP4);
static_assert(static_cast<int>(nibble::ScaleRounding::kLeastError) == NIBBLE_ROUND_LEAST_ERROR);
static_assert(static_cast<int>(nibble::ScaleRounding::kOcpFloor) == NIBBLE_ROUND_OCP_FLOOR);
static_assert(static_cast<int>(nibble::ScaleRounding::kNearestEven) == NIBBLE_ROUND_NEAREST_EVEN);
static_assert(static_cast<int>(nibble::ScaleLayout::k128x4) == NIBBLE_SCALES_128X4);
static_assert(static_cast<int>(nibble::ScaleLayout::k8x4) == NIBBLE_SCALES_8X4);
static_assert(static_cast<int>(nibble::ScaleLayout::kHopper) == NIBBLE_SCALES_HOPPER);
static_assert(static_cast<int>(nibble::GlobalScale::kAmax) == NIBBLE_GLOBAL_AMAX);
static_assert(static_cast<int>(nibble::GlobalScale::kPowerOfTwo) == NIBBLE_GLOBAL_POWER_OF_TWO);
static_assert(static_cast<int>(nibble::QuantDtype::kBF16) == NIBBLE_BF16);
static_assert(static_cast<int>(nibble::QuantDtype::kF16) == NIBBLE_F16);
static_assert(static_cast<int>(nibble::QuantBackend::kCpu) == NIBBLE_BACKEND_CPU);
static_assert(static_cast<int>(nibble::QuantBackend::kCuda) == NIBBLE_BACKEND_CUDA);

void nibble_quantize_args_init(nibble_quantize_args* args) {
  const nibble::QuantizeCall call;
  *args = {};
  args->num_experts = call.num_experts;
  args->dtype = NIBBLE_BF16;
  args->global_scale = NIBBLE_GLOBAL_POWER_OF_TWO;
  args->row_multiple = call.options.row_multiple;
  args->col_multiple = call.options.col_multiple;
  args->backend = NIBBLE_BACKEND_CPU;
}

nibble_code nibble_quantized_sizes(const nibble_quantize_args* args, nibble_quantized_size* size,
                                   nibble_message* message) {
  if (args == nullptr || size == nullptr) {
    return c_api::refuse_null(args == nullptr ? "args" : "size", message);
  }
  const nibble::Result<nibble::QuantizedSize> found = c_api::sizes(*args);
  if (found.has_value()) {
    *size = {found->padded_rows, found->padded_cols, found->value_bytes, found->scale_bytes};
  }
  return c_api::report(found.error(), message);
}

nibble_code nibble_quantize(const nibble_quantize_args* args, nibble_quantize_counts* counts,
                            nibble_message* message) {
  if (args == nullptr) {
    return c_api::refuse_null("args", message);
  }
  const nibble::Result<nibble::QuantizeCounts> done = c_api::quantize_dense(*args);
  if (done.has_value() && counts != nullptr) {
    *counts = {done->num_nan,          done->num_inf,
               done->first_non_finite, done->num_poisoned_blocks,
               done->num_saturated,    done->num_zeroed_blocks};
  }
  return c_api::report(done.error(), message);
}

nibble_code nibble_dequantize(const nibble_quantize_args* args, nibble_message* message) {
  if (args == nullptr) {
    return c_api::refuse_null("args", message);
  }
  return c_api::report(c_api::dequantize_values(*args), message);
}
