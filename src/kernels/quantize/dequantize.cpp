#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/f16.h"
#include "kernels/quantize/quantize.h"
#include "kernels/quantize/quantize_block.h"
#include "kernels/quantize/quantize_check.h"

namespace nibble::kernels {
namespace {

void store(float value, float& out) { out = value; }
void store(float value, formats::Bf16& out) { out = formats::f32_to_bf16(value); }
void store(float value, formats::F16& out) { out = formats::f32_to_f16(value); }

constexpr std::array<float, 256> make_e4m3_values() {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    values[code] = formats::e4m3_to_f32(static_cast<std::uint8_t>(code));
  }
  return values;
}
constexpr std::array<float, 256> kE4m3Values = make_e4m3_values();

template <typename T>
class Unpack {
 public:
  Unpack(const DequantizeArgs& args, const QuantizedExtent& extent)
      : args_(args), extent_(extent), elems_(block_elems(args.options.format)) {}

  void row(std::int64_t index) const {
    const std::int64_t expert = index / args_.rows;
    const std::int64_t row = index % args_.rows;
    for (std::int64_t col = 0; col < args_.cols; col += elems_) {
      block(expert, row, col);
    }
  }

 private:
  void block(std::int64_t expert, std::int64_t row, std::int64_t col) const {
    const QuantizeOptions& options = args_.options;
    const std::uint8_t scale =
        args_.scales[expert * extent_.scale_bytes + formats::scale_offset(options.scale_layout,
                                                                          {row, col / elems_},
                                                                          extent_.scales.blocks)];
    const float global = options.format == QuantFormat::kNvfp4
                             ? args_.global_scales[options.has_global_scale_per_expert ? expert : 0]
                             : 1.0F;
    const float step = block_step(options.format, scale, global);
    const bool is_row_major = options.order == MatrixOrder::kRowMajor;
    const std::int64_t stride = is_row_major ? 1 : args_.rows;
    T* out = static_cast<T*>(args_.out) + expert * args_.rows * args_.cols +
             (is_row_major ? row * args_.cols + col : col * args_.rows + row);
    const std::int64_t elems = std::min<std::int64_t>(elems_, args_.cols - col);
    const std::int64_t first = row * extent_.cols.value + col;
    const std::uint8_t* values = args_.values + expert * extent_.value_bytes;
    const bool is_fp8 = options.format == QuantFormat::kMxfp8;
    for (std::int64_t i = 0; i < elems; ++i) {
      const float element = is_fp8 ? kE4m3Values[values[first + i]]
                                   : formats::e2m1_to_f32(formats::e2m1_at(values, first + i));
      store(element * step, out[i * stride]);
    }
  }

  const DequantizeArgs& args_;
  const QuantizedExtent& extent_;
  std::int64_t elems_ = 0;
};

template <typename T>
void unpack(const DequantizeArgs& args, const QuantizedExtent& extent, ThreadPool* pool) {
  const Unpack<T> rows(args, extent);
  const std::int64_t num_rows = std::int64_t{args.num_experts} * args.rows;
  const auto part = [&rows](int /*worker*/, Range range) {
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      rows.row(row);
    }
  };
  if (pool == nullptr) {
    part(0, {0, num_rows});
  } else {
    pool->run_split(num_rows, 32, part);  // column-major output: whole cache lines for each worker
  }
}

}  // namespace

Status dequantize(const DequantizeArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(check_backend(args.options.backend));
  NIBBLE_RETURN_IF_ERROR(check_dtype(args.dtype));
  QuantizeArgs shape;
  shape.num_experts = args.num_experts;
  shape.rows = args.rows;
  shape.cols = args.cols;
  shape.options = args.options;
  shape.options.rounding = formats::ScaleRounding::kUp;  // not used, and every format has it
  NIBBLE_ASSIGN_OR_RETURN(const QuantizedExtent extent, quantized_extent(shape));
  if (args.num_experts == 0 || args.rows == 0 || args.cols == 0) {
    return {};
  }
  const bool needs_global = args.options.format == QuantFormat::kNvfp4;
  if (args.values == nullptr || args.scales == nullptr || args.out == nullptr ||
      (needs_global && args.global_scales == nullptr)) {
    return error(Code::kInvalidArgument,
                 "dequantize from {}: want values, scales, out{}, got a null pointer",
                 quant_format_name(args.options.format), needs_global ? " and global_scales" : "");
  }
  ThreadPool* pool = args.options.backend == Backend::kCpu ? exec.pool : nullptr;
  switch (args.dtype) {
    case DType::kF32: unpack<float>(args, extent, pool); break;
    case DType::kF16: unpack<formats::F16>(args, extent, pool); break;
    default: unpack<formats::Bf16>(args, extent, pool); break;
  }
  return {};
}

}  // namespace nibble::kernels
