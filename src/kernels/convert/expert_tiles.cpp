#include "kernels/convert/expert_tiles.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/error.h"
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

// hopper_pack_word moves each bit by itself: a packed word is the union of what its bytes become.
using ByteWords = std::array<std::array<std::uint32_t, 256>, 4>;
constexpr ByteWords byte_words() {
  ByteWords words{};
  for (std::uint32_t byte = 0; byte < 4; ++byte) {
    for (std::uint32_t value = 0; value < 256; ++value) {
      words[byte][value] = formats::hopper_pack_word(value << (8 * byte));
    }
  }
  return words;
}
constexpr ByteWords kByteWords = byte_words();
constexpr std::int64_t kChunkRowBytes = formats::kChunkCols / 2;

// Two rows of one chunk, to the four lanes that hold them. Bytes of a word: both rows' columns 2 t
// and 2 t + 1, then those of the other half of 16 columns.
void pack_row_pair(const std::uint8_t (&rows)[2][kChunkRowBytes], std::uint8_t* to) {
  for (int t = 0; t < 4; ++t) {
    std::uint32_t words[4];
    for (int fragment = 0; fragment < 4; ++fragment) {
      const int at = 8 * fragment + t;
      words[fragment] = kByteWords[0][rows[0][at]] | kByteWords[1][rows[1][at]] |
                        kByteWords[2][rows[0][at + 4]] | kByteWords[3][rows[1][at + 4]];
    }
    std::memcpy(to + std::size_t{16} * t, words, sizeof(words));
  }
}

void pack_values(const ExpertRowsView& from, formats::ExpertTileExtent extent, std::uint8_t* to) {
  const std::int64_t row_bytes = from.cols.value / 2;
  for (std::int64_t band = 0; band < extent.bands; ++band) {
    for (std::int64_t chunk = 0; chunk < extent.chunks; ++chunk) {
      const std::int64_t first = chunk * kChunkRowBytes;
      const auto bytes = static_cast<std::size_t>(std::min(kChunkRowBytes, row_bytes - first));
      for (std::int64_t row = band * formats::kBandRows; row < (band + 1) * formats::kBandRows;
           row += 2) {
        std::uint8_t rows[2][kChunkRowBytes] = {};
        for (std::int64_t i = 0; i < std::min<std::int64_t>(2, from.rows.value - row); ++i) {
          std::memcpy(rows[i], from.blocks + (row + i) * row_bytes + first, bytes);
        }
        pack_row_pair(rows, to);
        to += 64;
      }
    }
  }
}

}  // namespace

Result<std::int32_t> pack_expert_tiles(const ExpertRowsView& from, const ExpertTilesOut& to) {
  Result<std::int32_t> largest = largest_scale(from);
  if (!largest.has_value()) {
    return largest;
  }
  const auto extent = formats::expert_tile_extent(from.rows, from.cols);
  const std::int64_t row_blocks = from.cols.value / formats::kMxfp4BlockElems;
  pack_values(from, extent, to.values);
  std::memset(to.scales, 0, static_cast<std::size_t>(extent.scale_bytes()));
  for (std::int64_t row = 0; row < from.rows.value; ++row) {
    for (std::int64_t block = 0; block < row_blocks; ++block) {
      to.scales[formats::expert_scale_offset(row, block, extent)] = static_cast<std::uint8_t>(
          from.scales[row * row_blocks + block] + kLargestByte - *largest);
    }
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
