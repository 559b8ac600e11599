// Block-scaled quantisation to MXFP4, NVFP4 and MXFP8 and back, and the layouts that kernels read.
// On host memory, without state; every function may be called from any thread.
#pragma once

#include <cstdint>

#include "nibble/status.h"

namespace nibble {

/// Elements and scales of a block of consecutive columns of one row.
enum class QuantFormat : std::uint8_t {
  kMxfp4,  ///< 32 e2m1, one ue8m0 scale: e2m1 * 2^(scale - 127) (OCP Microscaling v1.0)
  kNvfp4,  ///< 16 e2m1, one e4m3 scale: e2m1 * (e4m3 * global scale)
  kMxfp8,  ///< 32 e4m3, one ue8m0 scale (OCP Microscaling v1.0)
};

/// Choice of a block's scale from the largest magnitude in it. M is the largest element (6 or 448).
enum class ScaleRounding : std::uint8_t {
  /// ue8m0: 2^ceil(log2(amax / M)), at least 2^-127, so that nothing saturates (the default of
  /// triton_kernels). e4m3: the least code at or above amax / (6 * global).
  kUp,
  /// ue8m0: the scale of kUp or half of it; e4m3: the code nearest to amax / (6 * global) or to
  /// amax / (4 * global). Whichever leaves the smaller sum of squared errors over the block, the
  /// first on a tie.
  kLeastError,
  /// ue8m0 only: 2^(floor(log2(amax)) - e), 2^e the largest power of two among the elements (OCP
  /// Microscaling v1.0, 6.3). Block maxima just below a power of two saturate.
  kOcpFloor,
  /// e4m3 only: the code nearest to amax / (6 * global), ties to even.
  kNearestEven,
};

/// Where the scale of (row, block) is stored. Rows and blocks are padded to whole tiles with zeros.
enum class ScaleLayout : std::uint8_t {
  kLinear,  ///< row-major, no padding
  k128x4,   ///< tiles of 128 rows x 4 blocks: sm_100 block-scaled products (FlashInfer, Triton)
  k8x4,     ///< tiles of 8 rows x 4 blocks: few rows (FlashInfer)
  kHopper,  ///< tiles of 256 rows x 2 blocks in the order of eight warps (Triton)
};

/// Where 4-bit values are stored. Padded to whole tiles with code 0.
enum class ValueLayout : std::uint8_t {
  kRowMajor,     ///< two codes a byte, the earlier column in the low nibble
  kHopper,       ///< 16-row register tiles, words repacked; tiles of 64 x 128 (Triton, sm_90)
  kHopperPairs,  ///< rows r and r + 8 share a byte; tiles of 16 x 64 (CUTLASS mixed input, sm_90)
  kBlackwell,    ///< row-major, rows padded to 256 columns (Triton, sm_100)
};

/// Rows of a fused gate/up projection.
enum class GateUpOrder : std::uint8_t {
  kInterleaved,      ///< gate 0, up 0, gate 1, ...: gpt-oss checkpoints
  kUpInterleaved,    ///< up 0, gate 0, up 1, ...: trtllm-gen
  kGateFirstHalves,  ///< all gate, then all up
  kUpFirstHalves,    ///< all up, then all gate: CUTLASS grouped products
};

enum class QuantDtype : std::uint8_t { kF32, kBF16, kF16 };

/// Global scales of NVFP4, from the largest finite magnitude amax of a tensor or expert.
enum class GlobalScale : std::uint8_t {
  kGiven,       ///< read from `global_scales`: finite, above 0
  kAmax,        ///< amax / 2688, that is (6 * 448); 1 for zeros
  kPowerOfTwo,  ///< least power of two >= amax / 1024: exact for values that came from MXFP4
};

enum class QuantBackend : std::uint8_t {
  kScalar,  ///< one thread, plain code
  kCpu,     ///< vectors and threads
  kCuda,    ///< kUnsupported, with the reason, in a build without such kernels
};

/// Every choice has a name; backends and thread counts give the same bytes.
struct QuantizeOptions {
  QuantFormat format = QuantFormat::kMxfp4;
  ScaleRounding rounding = ScaleRounding::kUp;
  ScaleLayout scale_layout = ScaleLayout::kLinear;
  GlobalScale global_scale = GlobalScale::kPowerOfTwo;
  bool has_global_scale_per_expert = false;  ///< else one for all experts
  bool is_column_major = false;   ///< the unquantised side: (row, col) at col * rows + row
  std::int32_t row_multiple = 1;  ///< values are padded to multiples of these
  std::int32_t col_multiple = 1;  ///< (columns also to whole blocks) with zeros
  std::int32_t num_threads = 0;   ///< kCpu: 0 is every processor this process may use
  QuantBackend backend = QuantBackend::kCpu;
};

/// Extents of one quantised matrix. Padded extents are what is stored.
struct QuantizedSize {
  std::int64_t padded_rows = 0;
  std::int64_t padded_cols = 0;
  std::int64_t value_bytes = 0;
  std::int64_t scale_bytes = 0;
};

/// What happened to the input; nothing is lost without being counted.
struct QuantizeCounts {
  std::int64_t num_nan = 0;              ///< elements
  std::int64_t num_inf = 0;              ///< elements
  std::int64_t first_non_finite = -1;    ///< least index of such an element, or -1
  std::int64_t num_poisoned_blocks = 0;  ///< blocks that hold one: NaN as a whole afterwards
  std::int64_t num_saturated = 0;        ///< finite elements more than half a step past the end
  std::int64_t num_zeroed_blocks = 0;    ///< too small for the scale's range: zeros afterwards
};

/// Inputs and outputs of `quantize`. No alignment is asked for; nothing may overlap.
struct QuantizeCall {
  const void* x = nullptr;         ///< [num_experts, rows, cols] of dtype
  std::uint8_t* values = nullptr;  ///< out [num_experts, value_bytes]
  std::uint8_t* scales = nullptr;  ///< out [num_experts, scale_bytes]
  float* global_scales = nullptr;  ///< NVFP4: [1] or [num_experts]; out unless kGiven
  std::int32_t num_experts = 1;
  std::int32_t rows = 0;
  std::int32_t cols = 0;
  QuantDtype dtype = QuantDtype::kBF16;
  QuantizeOptions options;
};

/// Sizes to allocate for. kInvalidArgument: a negative extent, a multiple below 1, a rounding that
/// the format's scale lacks.
Result<QuantizedSize> quantized_size(const QuantizeCall& call);

/// Codes are x / step, rounded once to float32, then to the nearest element, ties to even,
/// saturating, where step is the factor of the element in `QuantFormat`. The sign of zero is kept.
///
/// A block with NaN or Inf gets a NaN scale (0xFF; e4m3: 0x7F) and codes 0, and is counted; global
/// scales ignore such elements. A block of zeros gets scale 0. Padding has codes 0 and scale bytes
/// 0 and never enters a maximum.
///
/// kInvalidArgument, kUnsupported (backend or dtype): nothing was written.
Result<QuantizeCounts> quantize(const QuantizeCall& call);

struct DequantizeCall {
  const std::uint8_t* values = nullptr;  ///< [num_experts, value_bytes]
  const std::uint8_t* scales = nullptr;  ///< [num_experts, scale_bytes]
  const float* global_scales = nullptr;  ///< NVFP4: [1] or [num_experts]
  void* out = nullptr;                   ///< out [num_experts, rows, cols] of dtype, no padding
  std::int32_t num_experts = 1;
  std::int32_t rows = 0;
  std::int32_t cols = 0;
  QuantDtype dtype = QuantDtype::kBF16;
  QuantizeOptions options;  ///< rounding and global_scale are not used
};

/// Element times step in float32, rounded once to dtype. Scale byte 0 is 2^-127, a NaN scale makes
/// its block NaN, what dtype cannot hold becomes Inf.
Status dequantize(const DequantizeCall& call);

/// Moves one matrix of 4-bit codes between layouts; exact, and its own inverse with the layouts
/// exchanged. Source: Triton's and FlashInfer's layouts; docs/formats/value-layouts.md.
struct ValueLayoutCall {
  const std::uint8_t* from = nullptr;  ///< [value_layout_bytes(from_layout, ...)]
  std::uint8_t* to = nullptr;          ///< out [value_layout_bytes(to_layout, ...)]
  std::int64_t rows = 0;               ///< logical extents; padding is dropped and made anew
  std::int64_t cols = 0;               ///< multiple of 32
  ValueLayout from_layout = ValueLayout::kRowMajor;
  ValueLayout to_layout = ValueLayout::kRowMajor;
};
std::int64_t value_layout_bytes(ValueLayout layout, std::int64_t rows, std::int64_t cols);
Status convert_value_layout(const ValueLayoutCall& call);

/// The same for scale bytes; `blocks` of them in a row.
struct ScaleLayoutCall {
  const std::uint8_t* from = nullptr;  ///< [scale_layout_bytes(from_layout, ...)]
  std::uint8_t* to = nullptr;          ///< out [scale_layout_bytes(to_layout, ...)]
  std::int64_t rows = 0;
  std::int64_t blocks = 0;
  ScaleLayout from_layout = ScaleLayout::kLinear;
  ScaleLayout to_layout = ScaleLayout::kLinear;
};
std::int64_t scale_layout_bytes(ScaleLayout layout, std::int64_t rows, std::int64_t blocks);
Status convert_scale_layout(const ScaleLayoutCall& call);

/// The same for rows of a gate/up projection: values, scales or biases alike. Each half may be
/// padded (with zeros on the way in); padded halves are at least `half`.
struct GateUpOrderCall {
  const std::uint8_t* from = nullptr;  ///< [2 * from_padded_half, row_bytes]
  std::uint8_t* to = nullptr;          ///< out [2 * to_padded_half, row_bytes]
  std::int64_t row_bytes = 0;
  std::int64_t half = 0;  ///< rows of gate, and of up
  std::int64_t from_padded_half = 0;
  std::int64_t to_padded_half = 0;
  GateUpOrder from_order = GateUpOrder::kInterleaved;
  GateUpOrder to_order = GateUpOrder::kInterleaved;
};
Status convert_gate_up_order(const GateUpOrderCall& call);

}  // namespace nibble
