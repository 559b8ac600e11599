// Each thread makes whole words of tiles: the four bytes of a word are drawn at their places in the
// rows.
#pragma once

#include <cstdint>

#include "formats/expert_tiles.h"
#include "kernels/common/random_bits.h"

namespace nibble::kernels::device {

inline constexpr int kRandomTilesThreads = 256;

struct RandomTiles {
  std::uint8_t* values = nullptr;
  std::uint8_t* scales = nullptr;
  float* factors = nullptr;
  std::uint64_t blocks_key = 0;
  std::uint64_t scales_key = 0;
  std::int32_t middle_scale = 0;
  std::int32_t rows = 0;
  std::int32_t cols = 0;
};

// Byte `at` of a tensor of kBytes.
__device__ inline std::uint32_t random_byte(std::uint64_t key, std::int64_t at) {
  const auto place = static_cast<std::uint64_t>(at);
  return static_cast<std::uint32_t>(random_word(key, place / 8) >> (place % 8 * 8)) & 0xFFU;
}

// Grid (any, num_experts).
__global__ void __launch_bounds__(kRandomTilesThreads)
    random_tiles(const __grid_constant__ RandomTiles args) {
  const std::int64_t expert = blockIdx.y;
  const std::int64_t row_blocks = args.cols / 32;
  const auto extent =
      formats::expert_tile_extent(formats::LogicalRows(args.rows), formats::LogicalCols(args.cols));
  const std::int64_t first_row = expert * args.rows;
  auto* words = reinterpret_cast<std::uint32_t*>(args.values + expert * extent.value_bytes());
  std::uint8_t* bytes = args.scales + expert * extent.scale_bytes();
  const std::int32_t largest = args.middle_scale + 1;
  const std::int64_t first = std::int64_t{blockIdx.x} * kRandomTilesThreads + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * kRandomTilesThreads;
  for (std::int64_t i = first; i < extent.value_bytes() / 4; i += stride) {
    std::uint32_t codes = 0;
    for (std::int32_t byte = 0; byte < 4; ++byte) {
      const auto at = formats::expert_value_position(i * 8 + byte * 2, extent);
      if (at.row < args.rows && at.col < args.cols) {
        const std::int64_t place = ((first_row + at.row) * args.cols + at.col) / 2;
        codes |= random_byte(args.blocks_key, place) << (8 * byte);
      }
    }
    words[i] = formats::hopper_pack_word(codes);
  }
  for (std::int64_t i = first; i < extent.scale_bytes(); i += stride) {
    const auto at = formats::expert_scale_position(i, extent);
    std::uint32_t scale = 0;
    if (at.row < args.rows && at.block < row_blocks) {
      const std::int64_t place = (first_row + at.row) * row_blocks + at.block;
      const std::uint32_t third = random_byte(args.scales_key, place) * 3 >> 8U;
      scale = static_cast<std::uint32_t>(args.middle_scale + static_cast<std::int32_t>(third) - 1 +
                                         254 - largest);
    }
    bytes[i] = static_cast<std::uint8_t>(scale);
  }
  if (first == 0) {
    args.factors[expert] = exp2f(static_cast<float>(largest - 128));
  }
}

}  // namespace nibble::kernels::device
