// The walk over matrices: tiles of 16 rows, block by block, from any order and dtype.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "formats/f16.h"
#include "kernels/quantize/quantize_block.h"

namespace nibble::kernels {
namespace {

constexpr std::int32_t kTileRows = 16;
constexpr std::uint32_t kInfBits = 0x7F800000U;

float to_f32(float value) { return value; }
float to_f32(formats::Bf16 value) { return formats::bf16_to_f32(value); }
float to_f32(formats::F16 value) { return formats::f16_to_f32(value); }

struct Tile {
  alignas(64) float values[kTileRows][kMaxBlockElems];
};

struct TileOrigin {
  std::int64_t expert = 0;
  std::int64_t row = 0;  // first row
  std::int64_t col = 0;  // first column
};

class Walk {
 public:
  Walk(const QuantizeArgs& args, const BlockOps& ops)
      : args_(args), ops_(ops), extent_(quantized_extent(args).value()) {
    elems_ = block_elems(args.options.format);
    const bool is_fp8 = args.options.format == QuantFormat::kMxfp8;
    block_bytes_ = is_fp8 ? elems_ : elems_ / 2;
    row_bytes_ = extent_.cols.value / elems_ * block_bytes_;
  }

  std::int64_t tiles_per_expert() const { return (extent_.rows.value + kTileRows - 1) / kTileRows; }

  // Quantises tile `index`, counted over all experts.
  void tile(std::int64_t index, QuantizeReport& report) const {
    TileOrigin at{index / tiles_per_expert(), index % tiles_per_expert() * kTileRows, 0};
    const std::int64_t end = std::min<std::int64_t>(at.row + kTileRows, extent_.rows.value);
    const std::int64_t logical_end = std::clamp<std::int64_t>(args_.rows, at.row, end);
    std::memset(row_of(at.expert, logical_end), 0, (end - logical_end) * row_bytes_);
    for (; at.col < extent_.cols.value; at.col += elems_) {
      if (at.row < logical_end) {
        column_of_blocks(at, static_cast<std::int32_t>(logical_end - at.row), report);
      }
    }
  }

 private:
  void column_of_blocks(const TileOrigin& at, std::int32_t rows, QuantizeReport& report) const {
    Tile tile;
    switch (args_.dtype) {
      case DType::kF32: load<float>(at, rows, tile); break;
      case DType::kF16: load<formats::F16>(at, rows, tile); break;
      default: load<formats::Bf16>(at, rows, tile); break;
    }
    for (std::int32_t r = 0; r < rows; ++r) {
      block({at.expert, at.row + r, at.col}, tile.values[r], report);
    }
  }

  template <typename T>
  void load(const TileOrigin& at, std::int32_t rows, Tile& tile) const {
    const auto cols =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(args_.cols - at.col, 0, elems_));
    const T* source = static_cast<const T*>(args_.x);
    if (cols < elems_) {
      std::memset(&tile, 0, sizeof(tile));
    }
    if (cols == 0) {
      return;
    }
    if (args_.options.order == MatrixOrder::kRowMajor) {
      for (std::int32_t r = 0; r < rows; ++r) {
        const T* row = source + index_of({at.expert, at.row + r, at.col});
        for (std::int32_t c = 0; c < cols; ++c) {
          tile.values[r][c] = to_f32(row[c]);
        }
      }
      return;
    }
    for (std::int32_t c = 0; c < cols; ++c) {
      const T* column = source + index_of({at.expert, at.row, at.col + c});
      for (std::int32_t r = 0; r < rows; ++r) {
        tile.values[r][c] = to_f32(column[r]);
      }
    }
  }

  std::int64_t index_of(const TileOrigin& at) const {
    const std::int64_t matrix = at.expert * args_.rows * args_.cols;
    return args_.options.order == MatrixOrder::kRowMajor ? matrix + at.row * args_.cols + at.col
                                                         : matrix + at.col * args_.rows + at.row;
  }

  std::uint8_t* row_of(std::int64_t expert, std::int64_t row) const {
    return args_.values + expert * extent_.value_bytes + row * row_bytes_;
  }

  void block(const TileOrigin& at, const float* values, QuantizeReport& report) const {
    const QuantizeOptions& options = args_.options;
    std::uint8_t* codes = row_of(at.expert, at.row) + at.col / elems_ * block_bytes_;
    std::uint8_t& scale =
        args_.scales[at.expert * extent_.scale_bytes +
                     formats::scale_offset(options.scale_layout, {at.row, at.col / elems_},
                                           extent_.scales.blocks)];
    const std::uint32_t max_bits = ops_.max_magnitude_bits(values, elems_);
    if (max_bits >= kInfBits) {
      std::memset(codes, 0, block_bytes_);
      scale = nan_scale(options.format);
      count_non_finite(at, values, report);
      return;
    }
    const float amax = std::bit_cast<float>(max_bits);
    const BlockScale chosen = choose_scale(rule(at.expert), values, amax);
    scale = chosen.code;
    // Dividing by Inf leaves zeros with their signs.
    const float step = chosen.step == 0.0F ? std::numeric_limits<float>::infinity() : chosen.step;
    report.num_saturated += options.format == QuantFormat::kMxfp8
                                ? ops_.encode_e4m3(values, elems_, step, codes)
                                : ops_.encode_e2m1(values, elems_, step, codes);
    report.num_zeroed_blocks += amax > 0.0F && is_all_zero(codes) ? 1 : 0;
  }

  bool is_all_zero(const std::uint8_t* codes) const {
    const std::uint8_t magnitude = args_.options.format == QuantFormat::kMxfp8 ? 0x7F : 0x77;
    return std::all_of(codes, codes + block_bytes_,
                       [magnitude](std::uint8_t code) { return (code & magnitude) == 0; });
  }

  BlockRule rule(std::int64_t expert) const {
    const QuantizeOptions& options = args_.options;
    if (options.format != QuantFormat::kNvfp4) {
      return {options.format, options.rounding, 1.0F};
    }
    return {options.format, options.rounding,
            args_.global_scales[options.has_global_scale_per_expert ? expert : 0]};
  }

  void count_non_finite(const TileOrigin& at, const float* values, QuantizeReport& report) const {
    ++report.num_poisoned_blocks;
    for (std::int32_t i = 0; i < elems_; ++i) {
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU;
      if (magnitude < kInfBits) {
        continue;
      }
      ++(magnitude == kInfBits ? report.num_inf : report.num_nan);
      const std::int64_t index = index_of({at.expert, at.row, at.col + i});
      if (report.first_non_finite < 0 || index < report.first_non_finite) {
        report.first_non_finite = index;
      }
    }
  }

  const QuantizeArgs& args_;
  const BlockOps& ops_;
  QuantizedExtent extent_;
  std::int32_t elems_ = 0;
  std::int64_t block_bytes_ = 0;
  std::int64_t row_bytes_ = 0;
};

void add(QuantizeReport& sum, const QuantizeReport& part) {
  sum.num_nan += part.num_nan;
  sum.num_inf += part.num_inf;
  sum.num_poisoned_blocks += part.num_poisoned_blocks;
  sum.num_saturated += part.num_saturated;
  sum.num_zeroed_blocks += part.num_zeroed_blocks;
  if (part.first_non_finite >= 0 &&
      (sum.first_non_finite < 0 || part.first_non_finite < sum.first_non_finite)) {
    sum.first_non_finite = part.first_non_finite;
  }
}

}  // namespace

QuantizeReport quantize_matrices(const QuantizeArgs& args, const BlockOps& ops, ThreadPool* pool) {
  const Walk walk(args, ops);
  const QuantizedExtent extent = quantized_extent(args).value();
  std::memset(args.scales, 0, args.num_experts * extent.scale_bytes);
  const std::int64_t num_tiles = args.num_experts * walk.tiles_per_expert();
  QuantizeReport report;
  if (pool == nullptr) {
    for (std::int64_t tile = 0; tile < num_tiles; ++tile) {
      walk.tile(tile, report);
    }
    return report;
  }
  std::vector<QuantizeReport> parts(pool->size());
  pool->run_split(num_tiles, 1, [&](int worker, Range range) {
    QuantizeReport part;  // local: parts share cache lines
    for (std::int64_t tile = range.begin; tile < range.end; ++tile) {
      walk.tile(tile, part);
    }
    parts[worker] = part;
  });
  for (const QuantizeReport& part : parts) {
    add(report, part);
  }
  return report;
}

}  // namespace nibble::kernels
