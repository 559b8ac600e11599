#include "kernels/convert/expert_tiles.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/error.h"
#include "formats/e2m1.h"
#include "formats/mxfp4.h"
#include "formats/ue8m0.h"

namespace nibble::kernels {
namespace {

constexpr std::int32_t kLargestByte = 254;  // what the largest scale of an expert becomes

std::uint32_t load_word(const std::uint8_t* from) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

bool is_all_zero(const std::uint8_t* block) {
  // Code 8 is minus zero.
  return std::all_of(block, block + formats::kMxfp4BlockBytes,
                     [](std::uint8_t pair) { return (pair & 0x77U) == 0; });
}

// The largest scale, or why these scales cannot be rebased.
Result<std::int32_t> largest_scale(const ExpertRowsView& from) {
  const std::int64_t blocks = from.rows.value * (from.cols.value / formats::kMxfp4BlockElems);
  const std::span<const std::uint8_t> scales(from.scales, static_cast<std::size_t>(blocks));
  if (scales.empty()) {
    return 0;
  }
  const std::int32_t largest = *std::max_element(scales.begin(), scales.end());
  if (largest == formats::kUe8m0NaN) {
    return error(Code::kUnsupported, "expert tiles: want scale bytes 0..254, got 255 (NaN)");
  }
  for (std::int64_t i = 0; i < blocks; ++i) {
    if (largest - from.scales[i] > formats::kExpertScaleSpan &&
        !is_all_zero(from.blocks + i * formats::kMxfp4BlockBytes)) {
      return error(Code::kUnsupported,
                   "expert tiles: want the scales of an expert within {} powers of two, got bytes "
                   "{} and {}",
                   formats::kExpertScaleSpan, from.scales[i], largest);
    }
  }
  return largest;
}

}  // namespace

Result<std::int32_t> pack_expert_tiles(const ExpertRowsView& from, const ExpertTilesOut& to) {
  Result<std::int32_t> largest = largest_scale(from);
  if (!largest.has_value()) {
    return largest;
  }
  const auto extent = formats::expert_tile_extent(from.rows, from.cols);
  const std::int64_t row_blocks = from.cols.value / formats::kMxfp4BlockElems;
  std::memset(to.values, 0, static_cast<std::size_t>(extent.value_bytes()));
  std::memset(to.scales, 0, static_cast<std::size_t>(extent.scale_bytes()));
  for (std::int64_t row = 0; row < from.rows.value; ++row) {
    const std::uint8_t* codes = from.blocks + row * row_blocks * formats::kMxfp4BlockBytes;
    for (std::int64_t col = 0; col < from.cols.value; ++col) {
      const std::int64_t at = formats::expert_value_offset({row, col}, extent);
      to.values[at / 2] = static_cast<std::uint8_t>(to.values[at / 2] | formats::e2m1_at(codes, col)
                                                                            << (at % 2 * 4));
    }
    for (std::int64_t block = 0; block < row_blocks; ++block) {
      to.scales[formats::expert_scale_offset(row, block, extent)] = static_cast<std::uint8_t>(
          from.scales[row * row_blocks + block] + kLargestByte - *largest);
    }
  }
  for (std::int64_t at = 0; at < extent.value_bytes(); at += 4) {
    const std::uint32_t word = formats::hopper_pack_word(load_word(to.values + at));
    std::memcpy(to.values + at, &word, sizeof(word));
  }
  return *largest + 126 - kLargestByte;
}

void unpack_expert_tiles(const ExpertTilesView& from, std::uint8_t* blocks, std::uint8_t* scales) {
  const auto extent = formats::expert_tile_extent(from.rows, from.cols);
  const std::int64_t row_blocks = from.cols.value / formats::kMxfp4BlockElems;
  for (std::int64_t row = 0; row < from.rows.value; ++row) {
    for (std::int64_t col = 0; col < from.cols.value; col += 2) {
      const std::int64_t at = formats::expert_value_offset({row, col}, extent);
      const std::uint32_t codes =
          formats::hopper_unpack_word(load_word(from.values + at / 8 * 4)) >> (at % 8 * 4);
      blocks[(row * from.cols.value + col) / 2] = static_cast<std::uint8_t>(codes & 0xFFU);
    }
    for (std::int64_t block = 0; block < row_blocks; ++block) {
      const std::uint8_t byte = from.scales[formats::expert_scale_offset(row, block, extent)];
      scales[row * row_blocks + block] = static_cast<std::uint8_t>(byte + from.exponent - 126);
    }
  }
}

}  // namespace nibble::kernels
