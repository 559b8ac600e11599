#include "api/commands/expert_convert.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "kernels/quantize/quantize.h"

namespace nibble::commands {
namespace {

using formats::Bf16;

constexpr std::int64_t kTile = 32;  // of a transposition: whole cache lines on both sides

kernels::QuantizeOptions kernel_options(ExpertFormat form, formats::ScaleRounding rounding) {
  kernels::QuantizeOptions options;
  options.format =
      form == ExpertFormat::kNvfp4 ? kernels::QuantFormat::kNvfp4 : kernels::QuantFormat::kMxfp4;
  options.rounding = rounding;
  options.global_scale = kernels::GlobalScale::kPowerOfTwo;
  return options;
}

// body(row, col) over [rows, cols] in tiles, rows split over the pool.
template <typename Body>
void for_each_tiled(ThreadPool& pool, std::int64_t rows, std::int64_t cols, const Body& body) {
  pool.run_split(rows, kTile, [&](int /*worker*/, Range range) {
    for (std::int64_t left = 0; left < cols; left += kTile) {
      for (std::int64_t row = range.begin; row < range.end; ++row) {
        for (std::int64_t col = left; col < std::min(left + kTile, cols); ++col) {
          body(row, col);
        }
      }
    }
  });
}

Status unpack(const ExpertStack& stack, ExpertFormat form, const StoredExpert& in, ThreadPool& pool,
              float* out) {
  kernels::DequantizeArgs args;
  args.values = reinterpret_cast<const std::uint8_t*>(in.values.data());
  args.scales = reinterpret_cast<const std::uint8_t*>(in.scales.data());
  args.global_scales = &in.global_scale;
  args.out = out;
  args.rows = static_cast<std::int32_t>(stack.rows);
  args.cols = static_cast<std::int32_t>(stack.cols);
  args.dtype = DType::kF32;
  args.options = kernel_options(form, formats::ScaleRounding::kUp);
  return kernels::dequantize(args, {&pool, nullptr});
}

Status non_finite(std::int64_t index, std::int64_t cols, std::int64_t count) {
  return error(Code::kCorrupt, "want finite weights, found {} NaN or Inf, the first at [{}, {}]",
               count, index / cols, index % cols);
}

// Of the float32 values.
Status check_finite(const std::vector<float>& values, std::int64_t cols) {
  std::int64_t count = 0;
  std::int64_t first = -1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      first = count++ == 0 ? static_cast<std::int64_t>(i) : first;
    }
  }
  return count == 0 ? Status() : non_finite(first, cols, count);
}

}  // namespace

void ConversionError::add(const ConversionError& other) {
  max_abs = std::max(max_abs, other.max_abs);
  sum_squared += other.sum_squared;
  sum_squared_value += other.sum_squared_value;
  num_elems += other.num_elems;
  num_saturated += other.num_saturated;
  num_zeroed_blocks += other.num_zeroed_blocks;
}

std::int64_t expert_value_bytes(const ExpertStack& stack, ExpertFormat form) {
  const std::int64_t elems = stack.rows * stack.cols;
  return form == ExpertFormat::kBf16Transposed ? 2 * elems : elems / 2;
}

std::int64_t expert_scale_bytes(const ExpertStack& stack, ExpertFormat form) {
  const std::int64_t elems = stack.rows * stack.cols;
  return form == ExpertFormat::kBf16Transposed ? 0
         : form == ExpertFormat::kMxfp4        ? elems / 32
                                               : elems / 16;
}

Status ExpertConverter::load(const ExpertStack& stack, const StoredExpert& in,
                             std::vector<float>& values) {
  if (from_ != ExpertFormat::kBf16Transposed) {
    return unpack(stack, from_, in, pool_, values.data());
  }
  const auto* transposed = reinterpret_cast<const Bf16*>(in.values.data());
  for_each_tiled(pool_, stack.rows, stack.cols, [&](std::int64_t row, std::int64_t col) {
    values[row * stack.cols + col] = bf16_to_f32(transposed[col * stack.rows + row]);
  });
  return {};
}

Status ExpertConverter::store(const ExpertStack& stack, ConvertedExpert& out,
                              ConversionError& error_sums) {
  if (to_ == ExpertFormat::kBf16Transposed) {
    auto* transposed = reinterpret_cast<Bf16*>(out.values.data());
    for_each_tiled(pool_, stack.rows, stack.cols, [&](std::int64_t row, std::int64_t col) {
      const std::int64_t at = row * stack.cols + col;
      const Bf16 rounded = formats::f32_to_bf16(before_[at]);
      transposed[col * stack.rows + row] = rounded;
      after_[at] = bf16_to_f32(rounded);
    });
    return check_finite(after_, stack.cols);
  }
  kernels::QuantizeArgs args;
  args.x = before_.data();
  args.values = reinterpret_cast<std::uint8_t*>(out.values.data());
  args.scales = reinterpret_cast<std::uint8_t*>(out.scales.data());
  args.global_scales = &out.global_scale;
  args.rows = static_cast<std::int32_t>(stack.rows);
  args.cols = static_cast<std::int32_t>(stack.cols);
  args.dtype = DType::kF32;
  args.options = kernel_options(to_, rounding_);
  NIBBLE_ASSIGN_OR_RETURN(const kernels::QuantizeReport report,
                          kernels::quantize(args, {&pool_, nullptr}));
  if (report.first_non_finite >= 0) {
    return non_finite(report.first_non_finite, stack.cols, report.num_nan + report.num_inf);
  }
  error_sums.num_saturated = report.num_saturated;
  error_sums.num_zeroed_blocks = report.num_zeroed_blocks;
  return unpack(stack, to_, {out.values, out.scales, out.global_scale}, pool_, after_.data());
}

ConversionError ExpertConverter::compare(const ExpertStack& stack) {
  std::vector<ConversionError> rows(stack.rows);
  pool_.run_split(stack.rows, 1, [&](int /*worker*/, Range range) {
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      ConversionError sums;
      for (std::int64_t at = row * stack.cols; at < (row + 1) * stack.cols; ++at) {
        const double value = before_[at];
        const double difference = std::fabs(value - static_cast<double>(after_[at]));
        sums.max_abs = std::max(sums.max_abs, difference);
        sums.sum_squared += difference * difference;
        sums.sum_squared_value += value * value;
      }
      rows[row] = sums;
    }
  });
  ConversionError total;
  for (const ConversionError& row : rows) {
    total.add(row);
  }
  total.num_elems = stack.rows * stack.cols;
  return total;
}

Result<ConversionError> ExpertConverter::convert(const ExpertStack& stack, const StoredExpert& in,
                                                 ConvertedExpert& out) {
  before_.resize(static_cast<std::size_t>(stack.rows * stack.cols));
  after_.resize(before_.size());
  out.values.resize(static_cast<std::size_t>(expert_value_bytes(stack, to_)));
  out.scales.resize(static_cast<std::size_t>(expert_scale_bytes(stack, to_)));
  NIBBLE_RETURN_IF_ERROR(load(stack, in, before_));
  ConversionError counts;
  NIBBLE_RETURN_IF_ERROR(store(stack, out, counts));
  ConversionError total = compare(stack);
  total.num_saturated = counts.num_saturated;
  total.num_zeroed_blocks = counts.num_zeroed_blocks;
  return total;
}

}  // namespace nibble::commands
