// Block-scaled quantisation of matrices, and back. For each block of consecutive columns of a row:
//
//   mxfp4   32 x e2m1, ue8m0 scale                       value = e2m1 * 2^(scale - 127)
//   nvfp4   16 x e2m1, e4m3 scale, f32 global scale      value = e2m1 * (e4m3 * global)
//   mxfp8   32 x e4m3, ue8m0 scale                       value = e4m3 * 2^(scale - 127)
//
// With `step` the factor of the element above (one float32 product), codes are x / step rounded
// once to float32, then to the nearest code, ties to even, saturating. The sign of zero is kept.
// Scales: formats/block_scale.h for ue8m0; for e4m3, with r(c) = amax / (c * global) in float32:
//
//   kUp           least e4m3 >= r(6)
//   kNearestEven  e4m3 nearest to r(6), ties to even
//   kLeastError   nearest to r(6) or nearest to r(4), whichever leaves the smaller error
//
// kLeastError of ue8m0 chooses between the round-up scale and half of it. Errors are sums of
// squares over the block, in double, in order of columns; a tie takes the first named.
//
// Defined edges:
//   zero block     scale 0, codes 0 (minus zero keeps its sign: code 8, or 0x80)
//   NaN or Inf     the block becomes NaN: scale 0xFF (e4m3: 0x7F), codes 0. Counted in the report.
//   too small      a block whose scale or codes underflow becomes zeros. Counted in the report.
//   padding        value codes 0, scale bytes 0; never part of amax
//
// Results depend on nothing but the arguments: every backend and thread count gives the same bytes.
#pragma once

#include <cstdint>
#include <span>

#include "formats/block_scale.h"
#include "formats/extent.h"
#include "formats/scale_layout.h"
#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/dtype.h"
#include "tensor/exec.h"

namespace nibble::kernels {

enum class QuantFormat : std::uint8_t { kMxfp4, kNvfp4, kMxfp8 };

enum class MatrixOrder : std::uint8_t {
  kRowMajor,     // element (row, col) at row * cols + col
  kColumnMajor,  // element (row, col) at col * rows + row
};

// Where the global scales of nvfp4 come from. Over amax, the largest finite magnitude:
enum class GlobalScale : std::uint8_t {
  kGiven,       // read from `global_scales`, finite and positive
  kAmax,        // amax / (6 * 448)
  kPowerOfTwo,  // least power of two >= amax / 1024: exact for what MXFP4 holds (formats/nvfp4.h)
};

struct QuantizeOptions {
  QuantFormat format = QuantFormat::kMxfp4;
  formats::ScaleRounding rounding = formats::ScaleRounding::kUp;
  formats::ScaleLayout scale_layout = formats::ScaleLayout::kLinear;
  MatrixOrder order = MatrixOrder::kRowMajor;  // of the unquantised side
  GlobalScale global_scale = GlobalScale::kPowerOfTwo;
  bool has_global_scale_per_expert = false;  // one of [num_experts] instead of one of [1]
  std::int32_t row_multiple = 1;             // values are padded to multiples of these
  std::int32_t col_multiple = 1;             // and to whole blocks
  Backend backend = Backend::kCpu;
};

// Extents of one quantised matrix.
struct QuantizedExtent {
  formats::PaddedRows rows;
  formats::PaddedCols cols;
  formats::ScaleExtent scales;
  std::int64_t value_bytes = 0;
  std::int64_t scale_bytes = 0;
};

struct QuantizeArgs {
  const void* x = nullptr;         // [num_experts, rows, cols] in `order`, dtype
  std::uint8_t* values = nullptr;  // [num_experts, value_bytes], rows of padded cols; e2m1: two
                                   // codes a byte, the earlier in the low nibble
  std::uint8_t* scales = nullptr;  // [num_experts, scale_bytes]
  float* global_scales = nullptr;  // nvfp4: [1] or [num_experts]; written unless kGiven
  std::int32_t num_experts = 1;
  std::int32_t rows = 0;
  std::int32_t cols = 0;
  DType dtype = DType::kBF16;  // kF32, kBF16 or kF16
  QuantizeOptions options;
};

// What happened to the input; sums over all experts.
struct QuantizeReport {
  std::int64_t num_nan = 0;              // elements
  std::int64_t num_inf = 0;              // elements
  std::int64_t first_non_finite = -1;    // least index into x of such an element
  std::int64_t num_poisoned_blocks = 0;  // blocks that hold one
  std::int64_t num_saturated =
      0;  // finite elements that an unbounded grid would round past the end
  std::int64_t num_zeroed_blocks = 0;  // not all zero before, all zero after
};

// kInvalidArgument: an extent below 0, a multiple below 1, a rounding that the scale type lacks.
Result<QuantizedExtent> quantized_extent(const QuantizeArgs& args);

// kInvalidArgument as above, and for null pointers and bad given scales; kUnsupported names the
// backend or dtype that this build lacks. On failure nothing is written.
Result<QuantizeReport> quantize(const QuantizeArgs& args, const Exec& exec);

struct DequantizeArgs {
  const std::uint8_t* values = nullptr;  // as above
  const std::uint8_t* scales = nullptr;
  const float* global_scales = nullptr;
  void* out = nullptr;  // [num_experts, rows, cols] in `order`, dtype; padding is left out
  std::int32_t num_experts = 1;
  std::int32_t rows = 0;
  std::int32_t cols = 0;
  DType dtype = DType::kBF16;
  QuantizeOptions options;  // rounding and global_scale are not used
};

// Product in float32, rounded once to `dtype`. A NaN scale gives NaN for its whole block; values
// beyond the range of `dtype` give Inf.
Status dequantize(const DequantizeArgs& args, const Exec& exec);

// Largest finite magnitude of x [count] and nothing else; 0 when there is none.
Result<float> max_finite_magnitude(const void* x, DType dtype, std::int64_t count,
                                   const Exec& exec);

// Compulsory traffic of one call: x once (twice when it also gives the global scale), values and
// scales once. 0 for arguments that `quantize` refuses.
std::int64_t quantize_bytes(const QuantizeArgs& args);

// One row for each backend of this build.
std::span<const InstanceInfo> quantize_instances();

// Values that one scale covers.
constexpr std::int32_t block_elems(QuantFormat format) {
  return format == QuantFormat::kNvfp4 ? 16 : 32;
}
constexpr const char* quant_format_name(QuantFormat format) {
  return format == QuantFormat::kMxfp4   ? "mxfp4"
         : format == QuantFormat::kNvfp4 ? "nvfp4"
                                         : "mxfp8";
}

}  // namespace nibble::kernels
