// MXFP4 rows as checkpoints store them into expert tiles (formats/expert_tiles.h) and back, one
// expert's matrix at a time. Host memory, one thread; padding is written as zeros. The device twin
// is convert/device/expert_tiles.cuh; both give the same bytes.
#pragma once

#include <cstdint>

#include "formats/expert_tiles.h"
#include "nibble/status.h"

namespace nibble::kernels {

struct ExpertRowsView {
  const std::uint8_t* blocks = nullptr;  // [rows, cols / 32, 16]
  const std::uint8_t* scales = nullptr;  // [rows, cols / 32]
  formats::LogicalRows rows;
  formats::LogicalCols cols;  // multiple of 32
};

struct ExpertTilesOut {
  std::uint8_t* values = nullptr;  // extent.value_bytes()
  std::uint8_t* scales = nullptr;  // extent.scale_bytes()
};

// The exponent of the expert's factor 2^exponent. kUnsupported for a NaN scale (byte 255), and when
// blocks that are not all zero have scales more than kExpertScaleSpan powers of two below the
// largest: the tiles could not hold them exactly.
Result<std::int32_t> pack_expert_tiles(const ExpertRowsView& from, const ExpertTilesOut& to);

// The inverse: `blocks` and `scales` as they were.
struct ExpertTilesView {
  const std::uint8_t* values = nullptr;
  const std::uint8_t* scales = nullptr;
  std::int32_t exponent = 0;
  formats::LogicalRows rows;
  formats::LogicalCols cols;
};
void unpack_expert_tiles(const ExpertTilesView& from, std::uint8_t* blocks, std::uint8_t* scales);

}  // namespace nibble::kernels
