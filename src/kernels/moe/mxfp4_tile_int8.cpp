// But for the decoding plain loops, compiled for every instruction set: the compiler makes vectors
// of them.
#include "kernels/moe/mxfp4_tile_int8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/common/highway_targets.h"
#include "kernels/gemm/gemm_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe/mxfp4_tile_int8.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#ifndef NIBBLE_KERNELS_MOE_MXFP4_TILE_INT8_ONCE
#define NIBBLE_KERNELS_MOE_MXFP4_TILE_INT8_ONCE
namespace nibble::kernels {

inline constexpr std::array<std::int8_t, 16> kDoubledValues = {0, 1,  2,  3,  4,  6,  8,  12,
                                                               0, -1, -2, -3, -4, -6, -8, -12};

// 16 blocks of a row, in the order of an Int8Group; zeros and a finite scale where it has no more.
struct DecodedGroup {
  std::int8_t values[kInt8Sets][kInt8Lanes * 4];
  float scales[kInt8Lanes];
};

}  // namespace nibble::kernels
#endif  // NIBBLE_KERNELS_MOE_MXFP4_TILE_INT8_ONCE

HWY_BEFORE_NAMESPACE();
namespace nibble::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
// Codes of 16 blocks.
void decode_codes(const std::uint8_t* codes, DecodedGroup& out) {
  for (std::int64_t block = 0; block < kInt8Lanes; ++block) {
    const std::int32_t lane = int8_lane(block);
    for (std::int64_t i = 0; i < kInt8Block / 2; ++i) {
      const std::uint8_t pair = codes[block * kInt8Block / 2 + i];
      const std::int64_t at = 4 * lane + i % 4;
      out.values[i / 4 * 2][at] = kDoubledValues[pair & 0xFU];
      out.values[i / 4 * 2 + 1][at] = kDoubledValues[pair >> 4U];
    }
  }
}
#else
// Codes of 16 blocks. Those of four blocks that lie four apart, transposed in dwords, are a quarter
// of every set.
void decode_codes(const std::uint8_t* codes, DecodedGroup& out) {
  const hn::FixedTag<std::uint8_t, 16> d8;
  const hn::Repartition<std::uint32_t, decltype(d8)> d32;
  const hn::Repartition<std::uint64_t, decltype(d8)> d64;
  const hn::FixedTag<std::int8_t, 16> di;
  const auto table = hn::LoadU(di, kDoubledValues.data());
  for (std::int64_t quarter = 0; quarter < 4; ++quarter) {
    const std::uint8_t* from = codes + 16 * quarter;
    const auto a = hn::BitCast(d32, hn::LoadU(d8, from));
    const auto b = hn::BitCast(d32, hn::LoadU(d8, from + 64));
    const auto c = hn::BitCast(d32, hn::LoadU(d8, from + 128));
    const auto d = hn::BitCast(d32, hn::LoadU(d8, from + 192));
    const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d32, a, b));
    const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d32, a, b));
    const auto cd_low = hn::BitCast(d64, hn::InterleaveLower(d32, c, d));
    const auto cd_high = hn::BitCast(d64, hn::InterleaveUpper(d32, c, d));
    const hn::Vec<decltype(d64)> dwords[4] = {
        hn::InterleaveLower(d64, ab_low, cd_low), hn::InterleaveUpper(d64, ab_low, cd_low),
        hn::InterleaveLower(d64, ab_high, cd_high), hn::InterleaveUpper(d64, ab_high, cd_high)};
    for (std::int64_t k = 0; k < 4; ++k) {
      const auto pairs = hn::BitCast(d8, dwords[k]);
      const auto low = hn::BitCast(di, hn::And(pairs, hn::Set(d8, 15)));
      const auto high = hn::BitCast(di, hn::ShiftRight<4>(pairs));
      hn::StoreU(hn::TableLookupBytes(table, low), di, out.values[2 * k] + 16 * quarter);
      hn::StoreU(hn::TableLookupBytes(table, high), di, out.values[2 * k + 1] + 16 * quarter);
    }
  }
}
#endif

// Powers of two: byte 0 is a subnormal, byte 255 NaN, and the bit below the exponent makes both.
void decode_scales(const std::uint8_t* scales, DecodedGroup& out) {
  std::uint8_t by_lane[kInt8Lanes];
  for (std::int64_t block = 0; block < kInt8Lanes; ++block) {
    by_lane[int8_lane(block)] = scales[block];
  }
  std::uint32_t bits[kInt8Lanes];
  constexpr std::uint32_t kHalf = 0x00400000U;
  for (std::int64_t lane = 0; lane < kInt8Lanes; ++lane) {
    const std::uint32_t exponent = by_lane[lane];
    bits[lane] = std::max(exponent << 23U, kHalf) | (exponent == 255 ? kHalf : 0U);
  }
  std::memcpy(out.scales, bits, sizeof bits);
}

void decode(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t num_blocks,
            DecodedGroup& out) {
  if (num_blocks >= kInt8Lanes) {
    decode_codes(codes, out);
    decode_scales(scales, out);
    return;
  }
  std::uint8_t last_codes[kInt8GroupColumns / 2] = {};
  std::uint8_t last_scales[kInt8Lanes] = {};
  std::memcpy(last_codes, codes, static_cast<std::size_t>(num_blocks * kInt8Block / 2));
  std::memcpy(last_scales, scales, static_cast<std::size_t>(num_blocks));
  decode_codes(last_codes, out);
  decode_scales(last_scales, out);
}

// Adds a group's blocks to the lanes of one row and input. Eight products of at most 12 * 127 fit
// in 16 bits.
void add_group(const DecodedGroup& w, const Int8Group& x, float* lanes) {
  std::int16_t parts[kInt8Lanes * 4] = {};
  for (int set = 0; set < kInt8Sets; ++set) {
    for (int i = 0; i < kInt8Lanes * 4; ++i) {
      parts[i] = static_cast<std::int16_t>(parts[i] + w.values[set][i] * x.values[set][i]);
    }
  }
  for (std::int64_t lane = 0; lane < kInt8Lanes; ++lane) {
    const std::int32_t sum =
        parts[4 * lane] + parts[4 * lane + 1] + parts[4 * lane + 2] + parts[4 * lane + 3];
    lanes[lane] =
        std::fma(static_cast<float>(sum), w.scales[lane] * x.half_scales[lane], lanes[lane]);
  }
}

float sum_of_lanes(const float* lanes) {
  float quarters[4];
  for (std::int64_t q = 0; q < 4; ++q) {
    quarters[q] = (lanes[4 * q] + lanes[4 * q + 2]) + (lanes[4 * q + 1] + lanes[4 * q + 3]);
  }
  return (quarters[0] + quarters[2]) + (quarters[1] + quarters[3]);
}

void run_row(const Mxfp4Int8Tile& tile, const std::uint8_t* codes, const std::uint8_t* scales,
             float* out) {
  float lanes[kTileInputs][kInt8Lanes];
  std::fill_n(lanes[0], std::int64_t{tile.num_inputs} * kInt8Lanes, 0.0F);
  const std::int64_t num_groups = num_int8_groups(tile.cols);
  for (std::int64_t group = 0; group < num_groups; ++group) {
    const std::int64_t first = group * kInt8Lanes;
    DecodedGroup decoded;
    decode(codes + first * kInt8Block / 2, scales + first, tile.cols / kInt8Block - first, decoded);
    for (std::int64_t i = 0; i < tile.num_inputs; ++i) {
      add_group(decoded, tile.x[i * num_groups + group], lanes[i]);
    }
  }
  for (std::int64_t i = 0; i < tile.num_inputs; ++i) {
    out[i * kTileRows] = sum_of_lanes(lanes[i]);
  }
}

void run_tile(const Mxfp4Int8Tile& tile) {
  for (std::int64_t row = 0; row < kTileRows; ++row) {
    run_row(tile, tile.codes + row * tile.cols / 2, tile.scales + row * tile.cols / kInt8Block,
            tile.sums + row);
  }
}

}  // namespace nibble::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::kernels {

HWY_EXPORT(run_tile);

void mxfp4_tile_int8(const Mxfp4Int8Tile& tile) { HWY_DYNAMIC_DISPATCH(run_tile)(tile); }

}  // namespace nibble::kernels
#endif  // HWY_ONCE
