// For every processor: vectors where Highway or two intrinsics say what is needed, plain loops
// else.
#include "kernels/moe/mxfp4_tile_int8.h"

#include <hwy/cache_control.h>

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
// Values are `kBias` more than twice those of the weights.
struct alignas(64) DecodedGroup {
  std::int8_t values[kInt8Sets][kInt8Lanes * 4];
  float scales[kInt8Lanes];
};

}  // namespace nibble::kernels
#endif  // NIBBLE_KERNELS_MOE_MXFP4_TILE_INT8_ONCE

HWY_BEFORE_NAMESPACE();
namespace nibble::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// AVX-512 multiplies unsigned by signed bytes and has no sign to move from one to the other.
constexpr int kBias = HWY_TARGET == HWY_AVX3 ? 12 : 0;

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
// of every set; a vector holds one to four quarters.
HWY_INLINE void decode_codes(const std::uint8_t* codes, DecodedGroup& out) {
  const hn::CappedTag<std::uint8_t, 64> d8;
  const hn::Repartition<std::uint32_t, decltype(d8)> d32;
  const hn::Repartition<std::uint64_t, decltype(d8)> d64;
  const hn::RebindToSigned<decltype(d8)> di;
  const auto table = hn::Add(hn::LoadDup128(di, kDoubledValues.data()), hn::Set(di, kBias));
  const auto width = static_cast<std::int64_t>(hn::Lanes(d8));
  for (std::int64_t part = 0; part < 64; part += width) {
    const std::uint8_t* from = codes + part;
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
#pragma GCC unroll 4
    for (std::int64_t k = 0; k < 4; ++k) {
      const auto pairs = hn::BitCast(d8, dwords[k]);
      const auto low = hn::BitCast(di, hn::And(pairs, hn::Set(d8, 15)));
      const auto high = hn::BitCast(di, hn::ShiftRight<4>(pairs));
      hn::StoreU(hn::TableLookupBytes(table, low), di, out.values[2 * k] + part);
      hn::StoreU(hn::TableLookupBytes(table, high), di, out.values[2 * k + 1] + part);
    }
  }
}
#endif

// Scale bytes of 16 blocks by lane, 127 for those that the row has not.
#if HWY_TARGET == HWY_SCALAR
void sort_scales(const std::uint8_t* scales, std::int64_t num_blocks, std::uint8_t* by_lane) {
  for (std::int64_t block = 0; block < kInt8Lanes; ++block) {
    by_lane[int8_lane(block)] = block < num_blocks ? scales[block] : 127;
  }
}
#else
HWY_INLINE void sort_scales(const std::uint8_t* scales, std::int64_t num_blocks,
                            std::uint8_t* by_lane) {
  const hn::FixedTag<std::uint8_t, 16> d;
  alignas(16) static constexpr std::uint8_t kBlocks[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                           2, 6, 10, 14, 3, 7, 11, 15};
  const auto is_there =
      hn::FirstN(d, static_cast<std::size_t>(std::min<std::int64_t>(num_blocks, kInt8Lanes)));
  const auto all = hn::IfThenElse(is_there, hn::LoadU(d, scales), hn::Set(d, 127));
  hn::StoreU(hn::TableLookupBytes(all, hn::Load(d, kBlocks)), d, by_lane);
}
#endif

// Powers of two: byte 0 is a subnormal, byte 255 NaN, and the bit below the exponent makes both.
HWY_INLINE void decode_scales(const std::uint8_t* scales, std::int64_t num_blocks,
                              DecodedGroup& out) {
  std::uint8_t by_lane[kInt8Lanes];
  sort_scales(scales, num_blocks, by_lane);
  const hn::CappedTag<std::uint32_t, 16> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const hn::RebindToFloat<decltype(d)> df;
  const auto half = hn::Set(d, 0x00400000U);
  for (std::int64_t lane = 0; lane < kInt8Lanes; lane += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto exponent = hn::PromoteTo(d, hn::LoadU(d8, by_lane + lane));
    const auto is_nan = hn::Eq(exponent, hn::Set(d, 255));
    const auto power = hn::Max(hn::ShiftLeft<23>(exponent), half);
    hn::StoreU(hn::BitCast(df, hn::Or(power, hn::IfThenElseZero(is_nan, half))), df,
               out.scales + lane);
  }
}

// Rows of a tile from one of them on.
struct Rows {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  const std::uint8_t* codes_end = nullptr;  // of the tile
  const std::uint8_t* scales_end = nullptr;
  std::int64_t cols = 0;
};

// `count` of `wanted` bytes, with zeros behind.
HWY_NOINLINE const std::uint8_t* copy_bytes(const std::uint8_t* from, std::int64_t count,
                                            std::int64_t wanted, std::uint8_t* to) {
  std::memcpy(to, from, static_cast<std::size_t>(count));
  std::memset(to + count, 0, static_cast<std::size_t>(wanted - count));
  return to;
}

// Where the row's last group ends early, the codes of the next row take part: inputs are zero
// there.
HWY_INLINE void decode(const Rows& rows, std::int64_t group, DecodedGroup& out) {
  constexpr std::int64_t kCodes = kInt8GroupColumns / 2;
  const std::uint8_t* codes = rows.codes + group * kCodes;
  const std::uint8_t* scales = rows.scales + group * kInt8Lanes;
  for (std::int64_t line = 0; line < kCodes; line += 64) {  // of the next tile
    hwy::Prefetch(codes + kTileRows * rows.cols / 2 + line);
  }
  hwy::Prefetch(scales + kTileRows * rows.cols / kInt8Block);
  std::uint8_t last_codes[kCodes];
  std::uint8_t last_scales[kInt8Lanes];
  if (rows.codes_end - codes < kCodes) {
    codes = copy_bytes(codes, rows.codes_end - codes, kCodes, last_codes);
  }
  if (rows.scales_end - scales < kInt8Lanes) {
    scales = copy_bytes(scales, rows.scales_end - scales, kInt8Lanes, last_scales);
  }
  decode_codes(codes, out);
  decode_scales(scales, rows.cols / kInt8Block - group * kInt8Lanes, out);
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
// The whole numbers of a group's blocks, by lane. Products of an unsigned and a signed byte, two
// beside each other added: eight or four sets of them stay within 16 bits.
#if HWY_TARGET == HWY_AVX3
HWY_INLINE void sum_blocks(const DecodedGroup& w, const Int8Group& x, std::int32_t* sums) {
  __m512i total = _mm512_load_si512(x.starts);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {  // 4 sets of 2 products of at most 24 * 127
    __m512i pairs = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int set = 4 * half; set < 4 * half + 4; ++set) {
      pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16(_mm512_load_si512(w.values[set]),
                                                           _mm512_load_si512(x.values[set])));
    }
    total = _mm512_add_epi32(total, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
  _mm512_store_si512(sums, total);
}
#else
HWY_INLINE void sum_blocks(const DecodedGroup& w, const Int8Group& x, std::int32_t* sums) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {  // of the lanes; 8 sets of 2 products of at most 12 * 127
    __m256i pairs = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int set = 0; set < kInt8Sets; ++set) {
      const auto* weights = reinterpret_cast<const __m256i*>(w.values[set]) + half;
      const auto* inputs = reinterpret_cast<const __m256i*>(x.values[set]) + half;
      const __m256i weight = _mm256_load_si256(weights);
      const __m256i product = _mm256_maddubs_epi16(
          _mm256_abs_epi8(weight), _mm256_sign_epi8(_mm256_load_si256(inputs), weight));
      pairs = _mm256_add_epi16(pairs, product);
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(sums) + half,
                       _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
}
#endif

// Adds a group's blocks to the lanes of one row and input.
HWY_INLINE void add_group(const DecodedGroup& w, const Int8Group& x, float* lanes) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  alignas(64) std::int32_t sums[kInt8Lanes];
  sum_blocks(w, x, sums);
#pragma GCC unroll 2
  for (std::int64_t lane = 0; lane < kInt8Lanes; lane += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto scale = hn::Mul(hn::Load(d, w.scales + lane), hn::Load(d, x.half_scales + lane));
    const auto sum = hn::ConvertTo(d, hn::Load(di, sums + lane));
    hn::Store(hn::MulAdd(sum, scale, hn::Load(d, lanes + lane)), d, lanes + lane);
  }
}
#else
// Adds a group's blocks to the lanes of one row and input. Eight products of at most 12 * 127 fit
// in 16 bits. Not every vector unit fuses the last step, whose bits are those of a fused one.
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
#endif

float sum_of_lanes(const float* lanes) {
  float quarters[4];
  for (std::int64_t q = 0; q < 4; ++q) {
    quarters[q] = (lanes[4 * q] + lanes[4 * q + 2]) + (lanes[4 * q + 1] + lanes[4 * q + 3]);
  }
  return (quarters[0] + quarters[2]) + (quarters[1] + quarters[3]);
}

void run_row(const Mxfp4Int8Tile& tile, const Rows& rows, float* out) {
  alignas(64) float lanes[kTileInputs][kInt8Lanes];
  std::fill_n(lanes[0], std::int64_t{tile.num_inputs} * kInt8Lanes, 0.0F);
  const std::int64_t num_groups = num_int8_groups(tile.cols);
  for (std::int64_t group = 0; group < num_groups; ++group) {
    DecodedGroup decoded;
    decode(rows, group, decoded);
    for (std::int64_t i = 0; i < tile.num_inputs; ++i) {
      add_group(decoded, tile.x[i * num_groups + group], lanes[i]);
    }
  }
  for (std::int64_t i = 0; i < tile.num_inputs; ++i) {
    out[i * kTileRows] = sum_of_lanes(lanes[i]);
  }
}

void run_tile(const Mxfp4Int8Tile& tile) {
  const std::int64_t row_codes = tile.cols / 2;
  const std::int64_t row_scales = tile.cols / kInt8Block;
  Rows rows{tile.codes, tile.scales, tile.codes + kTileRows * row_codes,
            tile.scales + kTileRows * row_scales, tile.cols};
  for (std::int64_t row = 0; row < kTileRows; ++row) {
    run_row(tile, rows, tile.sums + row);
    rows.codes += row_codes;
    rows.scales += row_scales;
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
