#include "kernels/quantize/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "formats/f16.h"
#include "formats/nvfp4.h"
#include "kernels/quantize/quantize_block.h"
#include "kernels/quantize/quantize_check.h"

namespace nibble::kernels {
namespace {

using formats::ScaleRounding;

Status check_rounding(const QuantizeOptions& options) {
  const bool is_e4m3 = options.format == QuantFormat::kNvfp4;
  if (is_e4m3 && options.rounding == ScaleRounding::kOcpFloor) {
    return error(Code::kInvalidArgument,
                 "scale rounding of {}: want up, least error or nearest even, got OCP floor, which "
                 "is a rule for powers of two",
                 quant_format_name(options.format));
  }
  if (!is_e4m3 && options.rounding == ScaleRounding::kNearestEven) {
    return error(Code::kInvalidArgument,
                 "scale rounding of {}: want up, least error or OCP floor, got nearest even, which "
                 "is a rule for e4m3 scales",
                 quant_format_name(options.format));
  }
  return {};
}

// Largest finite magnitude, as bits: comparing integers orders magnitudes.
template <typename T>
std::uint32_t max_finite_bits(const T* x, Range range) {
  std::uint32_t most = 0;
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    std::uint32_t magnitude = 0;
    if constexpr (std::is_same_v<T, float>) {
      magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFU;
    } else {
      magnitude = x[i].bits & 0x7FFFU;
    }
    constexpr std::uint32_t kInf = std::is_same_v<T, float>          ? 0x7F800000U
                                   : std::is_same_v<T, formats::F16> ? 0x7C00U
                                                                     : 0x7F80U;
    magnitude = magnitude < kInf ? magnitude : 0U;
    most = magnitude > most ? magnitude : most;
  }
  return most;
}

template <typename T>
std::uint32_t max_finite_bits(const void* x, std::int64_t count, ThreadPool* pool) {
  const T* values = static_cast<const T*>(x);
  if (pool == nullptr) {
    return max_finite_bits(values, Range{0, count});
  }
  std::vector<std::uint32_t> parts(pool->size(), 0U);
  pool->run_split(count, 64,
                  [&](int worker, Range range) { parts[worker] = max_finite_bits(values, range); });
  return *std::max_element(parts.begin(), parts.end());
}

float max_finite(const void* x, DType dtype, std::int64_t count, ThreadPool* pool) {
  switch (dtype) {
    case DType::kF32: return std::bit_cast<float>(max_finite_bits<float>(x, count, pool));
    case DType::kF16:
      return formats::f16_to_f32(
          {static_cast<std::uint16_t>(max_finite_bits<formats::F16>(x, count, pool))});
    default:
      return formats::bf16_to_f32(
          {static_cast<std::uint16_t>(max_finite_bits<formats::Bf16>(x, count, pool))});
  }
}

Status check_given_scales(const QuantizeArgs& args) {
  const std::int32_t count = args.options.has_global_scale_per_expert ? args.num_experts : 1;
  for (std::int32_t i = 0; i < count; ++i) {
    if (!(args.global_scales[i] > 0.0F) || std::isinf(args.global_scales[i])) {
      return error(Code::kInvalidArgument, "global scale {}: want a finite value above 0, got {}",
                   i, args.global_scales[i]);
    }
  }
  return {};
}

void compute_global_scales(const QuantizeArgs& args, ThreadPool* pool) {
  const QuantizeOptions& options = args.options;
  const std::int64_t matrix = std::int64_t{args.rows} * args.cols;
  const std::int32_t count = options.has_global_scale_per_expert ? args.num_experts : 1;
  const std::int64_t elems =
      options.has_global_scale_per_expert ? matrix : matrix * args.num_experts;
  for (std::int32_t i = 0; i < count; ++i) {
    const auto* begin =
        static_cast<const std::byte*>(args.x) + i * elems * dtype_bits(args.dtype) / 8;
    const float amax = max_finite(begin, args.dtype, elems, pool);
    args.global_scales[i] = options.global_scale == GlobalScale::kAmax
                                ? formats::nvfp4_global_scale(amax)
                                : formats::nvfp4_global_scale_pow2(amax);
  }
}

}  // namespace

Status check_dtype(DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16) {
    return {};
  }
  return error(Code::kUnsupported, "unquantised dtype: want f32, bf16 or f16, got {}",
               dtype_name(dtype));
}

std::span<const InstanceInfo> quantize_instances() {
  static constexpr InstanceInfo kRows[] = {
      {.name = "quantize_scalar", .backend = Backend::kScalar},
      {.name = "quantize_cpu", .backend = Backend::kCpu},
  };
  return kRows;
}

Status check_backend(Backend backend) {
  const std::span<const InstanceInfo> rows = quantize_instances();
  const bool is_there = std::any_of(rows.begin(), rows.end(), [backend](const InstanceInfo& row) {
    return row.backend == backend;
  });
  return is_there ? Status()
                  : error(Code::kUnsupported,
                          "backend {}: this build has 0 such quantisers; use cpu or scalar",
                          backend_name(backend));
}

Result<QuantizedExtent> quantized_extent(const QuantizeArgs& args) {
  const QuantizeOptions& options = args.options;
  if (args.num_experts < 0 || args.rows < 0 || args.cols < 0) {
    return error(Code::kInvalidArgument, "extents: want 0 or more, got {} experts of [{}, {}]",
                 args.num_experts, args.rows, args.cols);
  }
  if (options.row_multiple < 1 || options.col_multiple < 1) {
    return error(Code::kInvalidArgument,
                 "padding multiples: want 1 or more, got {} rows, {} columns", options.row_multiple,
                 options.col_multiple);
  }
  NIBBLE_RETURN_IF_ERROR(check_rounding(options));
  const std::int64_t block = block_elems(options.format);
  QuantizedExtent extent;
  extent.rows = pad(formats::LogicalRows(args.rows), options.row_multiple);
  extent.cols =
      pad(formats::LogicalCols(args.cols), std::lcm(block, std::int64_t{options.col_multiple}));
  extent.scales =
      formats::scale_extent(options.scale_layout, formats::LogicalRows(extent.rows.value),
                            formats::LogicalBlocks(extent.cols.value / block));
  const std::int64_t values = extent.rows.value * extent.cols.value;
  extent.value_bytes = options.format == QuantFormat::kMxfp8 ? values : values / 2;
  extent.scale_bytes = extent.scales.bytes();
  return extent;
}

Result<QuantizeReport> quantize(const QuantizeArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(check_backend(args.options.backend));
  NIBBLE_RETURN_IF_ERROR(check_dtype(args.dtype));
  NIBBLE_ASSIGN_OR_RETURN(const QuantizedExtent extent, quantized_extent(args));
  if (args.num_experts * extent.value_bytes == 0) {
    return QuantizeReport{};
  }
  const bool needs_global = args.options.format == QuantFormat::kNvfp4;
  if (args.x == nullptr || args.values == nullptr || args.scales == nullptr ||
      (needs_global && args.global_scales == nullptr)) {
    return error(Code::kInvalidArgument,
                 "quantize to {}: want x, values, scales{}, got a null pointer",
                 quant_format_name(args.options.format), needs_global ? " and global_scales" : "");
  }
  ThreadPool* pool = args.options.backend == Backend::kCpu ? exec.pool : nullptr;
  if (needs_global && args.options.global_scale == GlobalScale::kGiven) {
    NIBBLE_RETURN_IF_ERROR(check_given_scales(args));
  } else if (needs_global) {
    compute_global_scales(args, pool);
  }
  const BlockOps& ops =
      args.options.backend == Backend::kCpu ? cpu_block_ops() : scalar_block_ops();
  return quantize_matrices(args, ops, pool);
}

std::int64_t quantize_bytes(const QuantizeArgs& args) {
  const Result<QuantizedExtent> extent = quantized_extent(args);
  if (!extent.has_value()) {
    return 0;
  }
  const bool reads_twice = args.options.format == QuantFormat::kNvfp4 &&
                           args.options.global_scale != GlobalScale::kGiven;
  const std::int64_t input =
      std::int64_t{args.rows} * args.cols * dtype_bits(args.dtype) / 8 * (reads_twice ? 2 : 1);
  return args.num_experts * (input + extent->value_bytes + extent->scale_bytes);
}

Result<float> max_finite_magnitude(const void* x, DType dtype, std::int64_t count,
                                   const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(check_dtype(dtype));
  return max_finite(x, dtype, count, exec.pool);
}

}  // namespace nibble::kernels
