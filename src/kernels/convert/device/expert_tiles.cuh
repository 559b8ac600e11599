// Repacks one MXFP4 matrix of every expert, as checkpoints store it, into expert tiles
// (formats/expert_tiles.h) in GPU memory. The host twin is kernels/convert/expert_tiles.h; both
// give the same bytes.
#pragma once

#include <cstdint>

#include "formats/expert_tiles.h"

namespace nibble::kernels::device {

// Matrices of num_experts experts one after another.
struct ExpertPack {
  const std::uint8_t* blocks = nullptr;  // [num_experts, rows, cols / 32, 16]
  const std::uint8_t* scales = nullptr;  // [num_experts, rows, cols / 32]
  std::uint8_t* tile_values = nullptr;   // [num_experts, bands, chunks, 512], 4-byte aligned
  std::uint8_t* tile_scales = nullptr;   // [num_experts, bands, chunks, 32]
  float* factors = nullptr;              // [num_experts] 2^exponent
  std::uint32_t* largest = nullptr;      // [num_experts] largest scale byte, zeroed before
  std::uint32_t* smallest = nullptr;     // [num_experts] 255 less the smallest, zeroed before
  std::int32_t rows = 0;
  std::int32_t cols = 0;  // multiple of 32
};

inline constexpr int kPackThreads = 256;

// Grid (any, num_experts).
__global__ void __launch_bounds__(kPackThreads)
    expert_scale_range(const __grid_constant__ ExpertPack args) {
  const std::int64_t expert = blockIdx.y;
  const std::int64_t count = std::int64_t{args.rows} * (args.cols / 32);
  const std::uint8_t* scales = args.scales + expert * count;
  std::uint32_t largest = 0;
  std::uint32_t smallest = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kPackThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kPackThreads) {
    largest = max(largest, static_cast<std::uint32_t>(scales[i]));
    smallest = max(smallest, 255U - scales[i]);
  }
  largest = __reduce_max_sync(0xFFFFFFFFU, largest);
  smallest = __reduce_max_sync(0xFFFFFFFFU, smallest);
  if (threadIdx.x % 32 == 0) {
    atomicMax(args.largest + expert, largest);
    atomicMax(args.smallest + expert, smallest);
  }
}

// Grid (any, num_experts); after expert_scale_range.
__global__ void __launch_bounds__(kPackThreads)
    pack_expert_tiles(const __grid_constant__ ExpertPack args) {
  const std::int64_t expert = blockIdx.y;
  const std::int64_t blocks = args.cols / 32;
  const auto extent =
      formats::expert_tile_extent(formats::LogicalRows(args.rows), formats::LogicalCols(args.cols));
  const std::uint8_t* from = args.blocks + expert * args.rows * blocks * 16;
  const std::uint8_t* scales = args.scales + expert * args.rows * blocks;
  auto* words = reinterpret_cast<std::uint32_t*>(args.tile_values + expert * extent.value_bytes());
  std::uint8_t* bytes = args.tile_scales + expert * extent.scale_bytes();
  const int exponent = static_cast<int>(args.largest[expert]) - 128;
  const std::int64_t first = std::int64_t{blockIdx.x} * kPackThreads + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * kPackThreads;
  for (std::int64_t i = first; i < extent.value_bytes() / 4; i += stride) {
    std::uint32_t codes = 0;
    for (std::uint32_t nibble = 0; nibble < 8; ++nibble) {
      const auto at = formats::expert_value_position(i * 8 + nibble, extent);
      if (at.row < args.rows && at.col < args.cols) {
        const std::uint32_t pair = from[at.row * blocks * 16 + at.col / 2];
        codes |= (pair >> (at.col % 2 * 4) & 0xFU) << (4U * nibble);
      }
    }
    words[i] = formats::hopper_pack_word(codes);
  }
  for (std::int64_t i = first; i < extent.scale_bytes(); i += stride) {
    const auto at = formats::expert_scale_position(i, extent);
    const bool is_inside = at.row < args.rows && at.block < blocks;
    bytes[i] = static_cast<std::uint8_t>(
        is_inside ? max(scales[at.row * blocks + at.block] + 126 - exponent, 0) : 0);
  }
  if (first == 0) {
    args.factors[expert] = exp2f(static_cast<float>(exponent));
  }
}

}  // namespace nibble::kernels::device
