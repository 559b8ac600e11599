// One MXFP4 matrix of every expert in expert tiles (formats/expert_tiles.h), and the decode of a
// word into the four registers of a 16 x 16 matrix-instruction fragment.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "formats/expert_tiles.h"
#include "kernels/common/ptx_load.cuh"
#include "kernels/common/ptx_mma.cuh"

namespace nibble::kernels::device {

struct ExpertTiles {
  const std::uint8_t* values = nullptr;  // [num_experts, bands, chunks, 512], 16-byte aligned
  const std::uint8_t* scales = nullptr;  // [num_experts, bands, chunks, 32]
  const float* factors = nullptr;        // [num_experts] 2^exponent
  const __nv_bfloat16* bias = nullptr;   // [num_experts, rows] or null
  std::int32_t rows = 0;
  std::int32_t cols = 0;    // multiple of 32
  std::int32_t bands = 0;   // rows / 16, rounded up
  std::int32_t chunks = 0;  // cols / 64, rounded up
};

// What one lane holds of a chunk: four words of eight codes, and four scale bytes.
struct LaneChunk {
  uint4 words;
  std::uint32_t scales;
};

// Where a lane's part of a chunk begins; the next chunks of the band follow.
struct LaneStream {
  const std::uint8_t* values = nullptr;
  const std::uint8_t* scales = nullptr;

  __device__ __forceinline__ void seek(const ExpertTiles& tiles, std::int64_t expert,
                                       std::int32_t band, std::int32_t chunk, std::int32_t lane) {
    const std::int64_t at = (expert * tiles.bands + band) * tiles.chunks + chunk;
    values = tiles.values + at * formats::kChunkValueBytes + lane * 16;
    scales = tiles.scales + at * formats::kChunkScaleBytes + lane / 4 * 4;
  }
  __device__ __forceinline__ void skip(std::int32_t chunks) {
    values += std::int64_t{chunks} * formats::kChunkValueBytes;
    scales += std::int64_t{chunks} * formats::kChunkScaleBytes;
  }
  __device__ __forceinline__ LaneChunk load(std::int32_t chunk) const {
    return {ld_global_nc_v4(values + chunk * formats::kChunkValueBytes),
            ld_global_nc_u32(scales + chunk * formats::kChunkScaleBytes)};
  }
};

// Places the codes of a word where bf16 has its sign, the low exponent bits and the high mantissa
// bit: each value times 2^-126, a half as a subnormal. A fragment is {row g, row g + 8, row g,
// row g + 8}, the last two for columns 8 to 15.
__device__ __forceinline__ void spread_word(std::uint32_t word, std::uint32_t (&fragment)[4]) {
  constexpr std::uint32_t kCode = 0x81C081C0U;
  fragment[0] = word & kCode;
  fragment[1] = word << 3U & kCode;
  fragment[2] = word << 6U & kCode;
  fragment[3] =
      (word << 1U & 0x80008000U) | (word >> 3U & 0x01800180U) | (word >> 7U & 0x00400040U);
}

// bf16 factors, twice, of the two rows of a lane, for the block of 32 columns that words 2 kBlock
// and 2 kBlock + 1 lie in. The product takes a byte to its place in both halves on the units of
// multiply-adds; decoding keeps those of shifts busy.
struct RowFactors {
  std::uint32_t first;
  std::uint32_t second;
};
template <int kBlock>
__device__ __forceinline__ RowFactors row_factors(std::uint32_t scales) {
  constexpr std::uint32_t kTwice = 0x00800080U;
  return {__byte_perm(scales, 0, 0x4440 | 2 * kBlock) * kTwice,
          __byte_perm(scales, 0, 0x4440 | (2 * kBlock + 1)) * kTwice};
}

// The weights of a word over 2^exponent; exact, see formats/expert_tiles.h.
__device__ __forceinline__ void decode_word(std::uint32_t word, RowFactors factors,
                                            std::uint32_t (&fragment)[4]) {
  spread_word(word, fragment);
  fragment[0] = mul_bf16x2(fragment[0], factors.first);
  fragment[1] = mul_bf16x2(fragment[1], factors.second);
  fragment[2] = mul_bf16x2(fragment[2], factors.first);
  fragment[3] = mul_bf16x2(fragment[3], factors.second);
}

// Scale byte kByte of a lane's four as fp32: 2^(byte - 127).
template <int kByte>
__device__ __forceinline__ float scale_f32(std::uint32_t scales) {
  constexpr int kLeft = 23 - 8 * kByte;
  const std::uint32_t moved = kLeft >= 0 ? scales << kLeft : scales >> -kLeft;
  return __uint_as_float(moved & 0x7F800000U);
}

// (up + 1) * gate * sigmoid(alpha * gate) with the clamps of gpt-oss.
__device__ __forceinline__ float gated(float gate, float up, float alpha, float limit) {
  const float g = fminf(gate, limit);
  const float l = fminf(fmaxf(up, -limit), limit);
  return __fdividef((l + 1.0F) * g, 1.0F + __expf(-alpha * g));
}

// Bias of rows `row` and `row + 1`, `row` even; zero without one.
__device__ __forceinline__ float2 bias_pair(const ExpertTiles& tiles, std::int64_t expert,
                                            std::int32_t row) {
  if (tiles.bias == nullptr || row >= tiles.rows) {
    return {0.0F, 0.0F};
  }
  const auto* at = tiles.bias + expert * tiles.rows + row;
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(at));
}

}  // namespace nibble::kernels::device
