// Built with flags of its own: nothing inline from elsewhere may be called here, lest the linker
// keep the copy that needs AVX-512.
#include "kernels/moe/mxfp4_tile_int8.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/common/reduce_avx512-inl.h"
#include "kernels/gemm/gemm_tile.h"

namespace nibble::kernels {
namespace {

constexpr std::int32_t kQuarters = 4;  // registers of codes of a group
constexpr std::int32_t kBlockRows = 4;
constexpr std::int32_t kBlockInputs = 3;  // 12 sums of a group, 12 of all groups
// Groups that are decoded at a time: 4 rows of 12 groups are 27 KiB.
constexpr std::int64_t kDecodedGroups = 12;
// Bytes of a decoded group of four rows: eight registers of values and one of scales for each.
constexpr std::int64_t kDecodedBytes = std::int64_t{kBlockRows} * (kInt8Sets + 1) * 64;

// 12 more than twice the value of each code: the unsigned side of the product.
struct CodeTable {
  alignas(64) std::uint8_t bytes[64] = {};
};
constexpr CodeTable make_code_table() {
  constexpr std::uint8_t kBiased[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
  CodeTable table;
  for (std::int32_t i = 0; i < 64; ++i) {
    table.bytes[i] = kBiased[i % 16];
  }
  return table;
}
constexpr CodeTable kCodeTable = make_code_table();

constexpr std::int64_t count_groups(std::int64_t cols) {
  return (cols + kInt8GroupColumns - 1) / kInt8GroupColumns;
}

// As many of 16 lanes as there are.
inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : count <= 0 ? 0 : (1 << count) - 1);
}

constexpr std::int64_t kGroupCodes = kInt8GroupColumns / 2;  // bytes

// The last codes of a tile, with zeros behind, where a whole group may be read.
__attribute__((noinline)) void copy_codes(const std::uint8_t* from, std::int64_t count,
                                          std::uint8_t* to) {
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < kQuarters; ++i) {
    const __mmask16 mask = first_lanes(count / 4 - 16 * i);
    _mm512_store_si512(to + 64 * i, _mm512_maskz_loadu_epi32(mask, from + 64 * i));
  }
}

// The eight registers of weights of a group, in the order of an Int8Group.
struct Weights {
  __m512i sets[kInt8Sets];
};

// The rows of a tile from one of them on.
struct Rows {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  std::int64_t cols = 0;
  const std::uint8_t* codes_end = nullptr;  // of the tile

  // Which of a group's blocks exist.
  inline __mmask16 blocks_of(std::int64_t group) const {
    return first_lanes(cols / kInt8Block - group * kInt8Lanes);
  }

  // Where a row's last group ends early, the codes of the next row take part: inputs are zero
  // there. Loads with part of a mask would be exact and cost several times as much. Dword k of the
  // codes of block 4 g + q goes to lane 4 q + g of register k.
  inline Weights load_weights(std::int64_t row, std::int64_t group, __m512i table) const {
    const std::uint8_t* from = codes + row * cols / 2 + group * kGroupCodes;
    const std::int64_t next_tile = kTileRows * cols / 2;
    alignas(64) std::uint8_t copy[kGroupCodes];
#pragma GCC unroll 4
    for (std::int32_t i = 0; i < kQuarters; ++i) {
      _mm_prefetch(from + next_tile + 64 * i, _MM_HINT_T0);
    }
    if (codes_end - from < kGroupCodes) {
      copy_codes(from, codes_end - from, copy);
      from = copy;
    }
    const __m512i in[kQuarters] = {_mm512_loadu_si512(from), _mm512_loadu_si512(from + 64),
                                   _mm512_loadu_si512(from + 128), _mm512_loadu_si512(from + 192)};
    const __m512i low01 = _mm512_unpacklo_epi32(in[0], in[1]);
    const __m512i high01 = _mm512_unpackhi_epi32(in[0], in[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(in[2], in[3]);
    const __m512i high23 = _mm512_unpackhi_epi32(in[2], in[3]);
    const __m512i dwords[kQuarters] = {
        _mm512_unpacklo_epi64(low01, low23), _mm512_unpackhi_epi64(low01, low23),
        _mm512_unpacklo_epi64(high01, high23), _mm512_unpackhi_epi64(high01, high23)};
    const __m512i nibble = _mm512_set1_epi8(15);
    Weights out;
#pragma GCC unroll 4
    for (std::int32_t k = 0; k < kQuarters; ++k) {
      const __m512i low = _mm512_and_si512(dwords[k], nibble);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(dwords[k], 4), nibble);
      out.sets[2 * k] = _mm512_shuffle_epi8(table, low);
      out.sets[2 * k + 1] = _mm512_shuffle_epi8(table, high);
    }
    return out;
  }

  // Powers of two of a group's blocks by lane; byte 0 is a subnormal, byte 255 NaN: the bit below
  // the exponent makes both.
  inline __m512 load_scales(std::int64_t row, std::int64_t group, __mmask16 mask) const {
    const std::uint8_t* from = scales + row * cols / kInt8Block + group * kInt8Lanes;
    _mm_prefetch(from + kTileRows * cols / kInt8Block, _MM_HINT_T0);
    const __m128i by_lane = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i bytes =
        _mm_shuffle_epi8(_mm_mask_loadu_epi8(_mm_set1_epi8(127), mask, from), by_lane);
    const __m512i exponents = _mm512_cvtepu8_epi32(bytes);
    const __m512i half = _mm512_set1_epi32(0x00400000);
    const __m512i powers = _mm512_max_epu32(_mm512_slli_epi32(exponents, 23), half);
    const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(exponents, _mm512_set1_epi32(255));
    return _mm512_castsi512_ps(_mm512_mask_or_epi32(powers, is_nan, powers, half));
  }
};

// A block's whole number and both scales to the sum of its lane.
inline __m512 add_scaled(__m512i product, __m512 power, const Int8Group& x, __m512 sum) {
  const __m512 scale = _mm512_mul_ps(power, _mm512_load_ps(x.half_scales));
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(product), scale, sum);
}

// Adds a group to the sums of kRows rows with kInputs inputs.
template <std::int32_t kRows, std::int32_t kInputs>
inline void add_group(const Rows& rows, std::int64_t group, const Int8Group* x,
                      std::int64_t num_groups, __m512 (&sums)[kRows][kInputs]) {
  const __m512i table = _mm512_load_si512(kCodeTable.bytes);
  const __mmask16 blocks = rows.blocks_of(group);
#pragma GCC unroll 8
  for (std::int32_t n = 0; n < kRows; ++n) {
    const Weights w = rows.load_weights(n, group, table);
    const __m512 power = rows.load_scales(n, group, blocks);
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
      const Int8Group& input = x[i * num_groups + group];
      __m512i product = _mm512_load_si512(input.starts);
#pragma GCC unroll 8
      for (std::int32_t set = 0; set < kInt8Sets; ++set) {
        product = _mm512_dpbusd_epi32(product, w.sets[set], _mm512_load_si512(input.values[set]));
      }
      sums[n][i] = add_scaled(product, power, input, sums[n][i]);
    }
  }
}

// Few inputs: the weights stay in registers.
template <std::int32_t kRows, std::int32_t kInputs>
void multiply_few(const Rows& rows, const Int8Group* x, float* out) {
  __m512 sums[kRows][kInputs];
#pragma GCC unroll 8
  for (std::int32_t n = 0; n < kRows; ++n) {
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
      sums[n][i] = _mm512_setzero_ps();
    }
  }
  const std::int64_t num_groups = count_groups(rows.cols);
  for (std::int64_t group = 0; group < num_groups; ++group) {
    add_group(rows, group, x, num_groups, sums);
  }
#pragma GCC unroll 8
  for (std::int32_t i = 0; i < kInputs; ++i) {
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kRows; n += 4) {
      _mm_storeu_ps(out + i * kTileRows + n,
                    sum_lanes(sums[n][i], sums[n + 1][i], sums[n + 2][i], sums[n + 3][i]));
    }
  }
}

// Four rows for many inputs: decoded once, a range of groups at a time. A group is eight registers
// of values for each row, set by set, then the rows' scales.
void decode(const Rows& rows, std::int64_t begin, std::int64_t end, std::uint8_t* out) {
  const __m512i table = _mm512_load_si512(kCodeTable.bytes);
  for (std::int64_t group = begin; group < end; ++group, out += kDecodedBytes) {
    const __mmask16 blocks = rows.blocks_of(group);
#pragma GCC unroll 4
    for (std::int32_t n = 0; n < kBlockRows; ++n) {
      const Weights w = rows.load_weights(n, group, table);
#pragma GCC unroll 8
      for (std::int32_t set = 0; set < kInt8Sets; ++set) {
        _mm512_store_si512(out + (set * kBlockRows + n) * 64, w.sets[set]);
      }
      _mm512_store_ps(out + (kInt8Sets * kBlockRows + n) * 64, rows.load_scales(n, group, blocks));
    }
  }
}

// Adds a range of decoded groups to the sums of four rows with kInputs inputs.
template <std::int32_t kInputs>
void multiply_decoded(const std::uint8_t* groups, std::int64_t count, const Int8Group* x,
                      std::int64_t num_groups, __m512 (*running)[kBlockRows]) {
  __m512 sums[kBlockRows][kInputs];
#pragma GCC unroll 8
  for (std::int32_t i = 0; i < kInputs; ++i) {
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kBlockRows; ++n) {
      sums[n][i] = running[i][n];
    }
  }
  for (std::int64_t group = 0; group < count; ++group, ++x, groups += kDecodedBytes) {
    __m512i products[kBlockRows][kInputs];
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
#pragma GCC unroll 8
      for (std::int32_t n = 0; n < kBlockRows; ++n) {
        products[n][i] = _mm512_load_si512(x[i * num_groups].starts);
      }
    }
#pragma GCC unroll 8
    for (std::int32_t set = 0; set < kInt8Sets; ++set) {
      __m512i v[kInputs];
#pragma GCC unroll 8
      for (std::int32_t i = 0; i < kInputs; ++i) {
        v[i] = _mm512_load_si512(x[i * num_groups].values[set]);
      }
#pragma GCC unroll 8
      for (std::int32_t n = 0; n < kBlockRows; ++n) {
        const __m512i w = _mm512_load_si512(groups + (set * kBlockRows + n) * 64);
#pragma GCC unroll 8
        for (std::int32_t i = 0; i < kInputs; ++i) {
          products[n][i] = _mm512_dpbusd_epi32(products[n][i], w, v[i]);
        }
      }
    }
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kBlockRows; ++n) {
      const __m512 power = _mm512_load_ps(groups + (kInt8Sets * kBlockRows + n) * 64);
#pragma GCC unroll 8
      for (std::int32_t i = 0; i < kInputs; ++i) {
        sums[n][i] = add_scaled(products[n][i], power, x[i * num_groups], sums[n][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::int32_t i = 0; i < kInputs; ++i) {
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kBlockRows; ++n) {
      running[i][n] = sums[n][i];
    }
  }
}

void multiply_many(const Rows& rows, const Mxfp4Int8Tile& tile, float* out) {
  alignas(64) std::uint8_t decoded[kDecodedGroups * kDecodedBytes];
  __m512 running[kTileInputs][kBlockRows];
  for (std::int32_t i = 0; i < tile.num_inputs; ++i) {
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kBlockRows; ++n) {
      running[i][n] = _mm512_setzero_ps();
    }
  }
  const std::int64_t num_groups = count_groups(tile.cols);
  for (std::int64_t begin = 0; begin < num_groups; begin += kDecodedGroups) {
    const std::int64_t end =
        begin + kDecodedGroups < num_groups ? begin + kDecodedGroups : num_groups;
    decode(rows, begin, end, decoded);
    const Int8Group* x = tile.x + begin;
    std::int32_t i = 0;
    for (; i + kBlockInputs <= tile.num_inputs; i += kBlockInputs) {
      multiply_decoded<kBlockInputs>(decoded, end - begin, x + i * num_groups, num_groups,
                                     running + i);
    }
    for (; i < tile.num_inputs; ++i) {
      multiply_decoded<1>(decoded, end - begin, x + i * num_groups, num_groups, running + i);
    }
  }
  for (std::int32_t i = 0; i < tile.num_inputs; ++i) {
    _mm_storeu_ps(out + i * kTileRows,
                  sum_lanes(running[i][0], running[i][1], running[i][2], running[i][3]));
  }
}

}  // namespace

void mxfp4_tile_int8_vnni(const Mxfp4Int8Tile& tile) {
  Rows rows{tile.codes, tile.scales, tile.cols, tile.codes + kTileRows * tile.cols / 2};
  if (tile.num_inputs == 1) {
    return multiply_few<kTileRows, 1>(rows, tile.x, tile.sums);
  }
  for (std::int32_t row = 0; row < kTileRows; row += kBlockRows) {
    float* out = tile.sums + row;
    switch (tile.num_inputs) {
      case 2: multiply_few<kBlockRows, 2>(rows, tile.x, out); break;
      case 3: multiply_few<kBlockRows, 3>(rows, tile.x, out); break;
      default: multiply_many(rows, tile, out); break;
    }
    rows.codes += kBlockRows * tile.cols / 2;
    rows.scales += kBlockRows * tile.cols / kInt8Block;
  }
}

}  // namespace nibble::kernels

#endif  // defined(__x86_64__)
