// Built with flags of its own: nothing inline from elsewhere may be called here, lest the linker
// keep the copy that needs AVX-512.
#include "kernels/moe/mxfp4_tile.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <bit>

#include "formats/e2m1.h"
#include "kernels/common/reduce_avx512-inl.h"
#include "kernels/gemm/gemm_tile.h"

namespace nibble::kernels {
namespace {

constexpr std::int64_t kScaleBlock = 32;
constexpr std::int64_t kScales = 16;  // scales in a register
constexpr std::int64_t kQuads = 4;
constexpr std::int64_t kWords = 32;  // bf16 numbers in a register
constexpr std::int64_t kBlockRows = 4;
constexpr std::int64_t kRowSums = kTileRows;  // from an input to the next
// Up to so many, decoding anew in registers is faster than decoding once to memory.
constexpr std::int32_t kFewInputs = 12;
// Groups that are decoded at a time: 4 rows of 24 groups are 30 KiB.
constexpr std::int64_t kDecodedGroups = 24;
// Bytes of a decoded group of four rows: four registers of values and one of scales for each.
constexpr std::int64_t kDecodedBytes = kBlockRows * (kQuads + 1) * 64;

// Each code twice, so that a fifth index bit does not matter.
struct CodeTable {
  alignas(64) std::uint16_t bits[kWords] = {};
};
constexpr CodeTable make_code_table() {
  CodeTable table;
  for (std::int64_t i = 0; i < kWords; ++i) {
    table.bits[i] = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(formats::kE2m1Values[static_cast<std::size_t>(i % 16)]) >> 16);
  }
  return table;
}
constexpr CodeTable kCodeTable = make_code_table();

// The rows of a tile from one of them on.
struct Rows {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  std::int64_t cols = 0;

  // The codes of columns [at, at + 128), zeros where the mask has none.
  inline __m512i load_codes(std::int64_t row, std::int64_t at, __mmask16 mask) const {
    const std::uint8_t* from = codes + (row * cols + at) / 2;
    _mm_prefetch(from + kTileRows * cols / 2, _MM_HINT_T0);  // the next tile
    return _mm512_maskz_loadu_epi32(mask, from);
  }

  // Powers of two of the 16 blocks from column `at` on; byte 0 is a subnormal, byte 255 NaN: the
  // bit below the exponent makes both.
  inline __m512 load_scales(std::int64_t row, std::int64_t at, __mmask16 mask) const {
    const std::uint8_t* from = scales + (row * cols + at) / kScaleBlock;
    _mm_prefetch(from + kTileRows * cols / kScaleBlock, _MM_HINT_T0);
    const __m512i exponents = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, from));
    const __m512i half = _mm512_set1_epi32(0x00400000);
    const __m512i powers = _mm512_max_epu32(_mm512_slli_epi32(exponents, 23), half);
    const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(exponents, _mm512_set1_epi32(255));
    return _mm512_castsi512_ps(_mm512_mask_or_epi32(powers, is_nan, powers, half));
  }
};

inline __m512bh values_of(__m512i codes, __m512i table) {
  return (__m512bh)_mm512_permutexvar_epi16(codes, table);
}

// Which of 16 scales each lane takes in the first group; 4 more in each that follows.
inline __m512i first_scales() {
  return _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
}

// As many of 16 lanes as there are.
inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1 << count) - 1);
}

// What the rows share in a group of columns.
struct Group {
  std::int64_t at = 0;  // the first column
  __mmask16 codes = 0;
  __m512i which;  // of 16 scales, for each lane
};

// Calls step(group, powers) for each group of columns [begin, end), with the scales of kRows rows.
template <std::int64_t kRows, typename Step>
inline void for_groups(const Rows& rows, std::int64_t begin, std::int64_t end, Step&& step) {
  for (std::int64_t block = begin; block < end; block += kScales * kScaleBlock) {
    const __mmask16 mask = first_lanes((rows.cols - block) / kScaleBlock);
    __m512 powers[kRows];
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < kRows; ++n) {
      powers[n] = rows.load_scales(n, block, mask);
    }
    Group group{.at = block, .codes = 0, .which = first_scales()};
    const std::int64_t block_end = block + kScales * kScaleBlock;
    for (; group.at < (end < block_end ? end : block_end); group.at += kQuadGroup) {
      group.codes = first_lanes((rows.cols - group.at) / 8);
      step(group, powers);
      group.which = _mm512_add_epi32(group.which, _mm512_set1_epi32(int{kQuads}));
    }
  }
}

// Few inputs: the values stay in registers.
template <std::int64_t kRows, std::int64_t kInputs>
void multiply_few(const Rows& rows, const formats::Bf16* x, std::int64_t x_stride, float* out) {
  __m512 sums[kRows][kInputs];
#pragma GCC unroll 8
  for (std::int64_t n = 0; n < kRows; ++n) {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kInputs; ++i) {
      sums[n][i] = _mm512_setzero_ps();
    }
  }
  const __m512i table = _mm512_load_si512(kCodeTable.bits);
  for_groups<kRows>(rows, 0, rows.cols, [&](const Group& group, const __m512* powers) {
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < kRows; ++n) {
      const __m512i codes = rows.load_codes(n, group.at, group.codes);
      const __m512bh w0 = values_of(codes, table);
      const __m512bh w1 = values_of(_mm512_srli_epi16(codes, 4), table);
      const __m512bh w2 = values_of(_mm512_srli_epi16(codes, 8), table);
      const __m512bh w3 = values_of(_mm512_srli_epi16(codes, 12), table);
      const __m512 scale = _mm512_permutexvar_ps(group.which, powers[n]);
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < kInputs; ++i) {
        const formats::Bf16* from = x + i * x_stride + group.at;
        __m512 sum = _mm512_setzero_ps();
        sum = _mm512_dpbf16_ps(sum, w0, (__m512bh)_mm512_load_si512(from));
        sum = _mm512_dpbf16_ps(sum, w1, (__m512bh)_mm512_load_si512(from + kWords));
        sum = _mm512_dpbf16_ps(sum, w2, (__m512bh)_mm512_load_si512(from + 2 * kWords));
        sum = _mm512_dpbf16_ps(sum, w3, (__m512bh)_mm512_load_si512(from + 3 * kWords));
        sums[n][i] = _mm512_fmadd_ps(sum, scale, sums[n][i]);
      }
    }
  });
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kInputs; ++i) {
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < kRows; n += 4) {
      _mm_storeu_ps(out + i * kRowSums + n,
                    sum_lanes(sums[n][i], sums[n + 1][i], sums[n + 2][i], sums[n + 3][i]));
    }
  }
}

// How many of two or more inputs to take next: three, whose 12 sums of a group and 12 of all groups
// the registers hold, or two lest one is left.
inline std::int64_t next_inputs(std::int64_t left) { return left == 2 || left == 4 ? 2 : 3; }

// Decodes anew for every two or three inputs.
void multiply_anew(const Rows& rows, const Mxfp4Tile& tile, float* out) {
  const formats::Bf16* x = tile.x;
  for (std::int64_t left = tile.num_inputs; left > 0;) {
    const std::int64_t taken = next_inputs(left);
    taken == 2 ? multiply_few<kBlockRows, 2>(rows, x, tile.x_stride, out)
               : multiply_few<kBlockRows, 3>(rows, x, tile.x_stride, out);
    x += taken * tile.x_stride;
    out += taken * kRowSums;
    left -= taken;
  }
}

// Four rows for many inputs: decoded once, a range of columns at a time. A group of columns is four
// registers of values for each row, set by set, then the rows' scales.
void decode(const Rows& rows, std::int64_t begin, std::int64_t end, std::uint8_t* out) {
  const __m512i table = _mm512_load_si512(kCodeTable.bits);
  for_groups<kBlockRows>(rows, begin, end, [&](const Group& group, const __m512* powers) {
    constexpr std::int64_t kSet = kBlockRows * 64;
    std::uint8_t* to = out + (group.at - begin) / kQuadGroup * kDecodedBytes;
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < kBlockRows; ++n, to += 64) {
      const __m512i codes = rows.load_codes(n, group.at, group.codes);
      _mm512_store_si512(to, (__m512i)values_of(codes, table));
      _mm512_store_si512(to + kSet, (__m512i)values_of(_mm512_srli_epi16(codes, 4), table));
      _mm512_store_si512(to + 2 * kSet, (__m512i)values_of(_mm512_srli_epi16(codes, 8), table));
      _mm512_store_si512(to + 3 * kSet, (__m512i)values_of(_mm512_srli_epi16(codes, 12), table));
      _mm512_store_ps(to + 4 * kSet, _mm512_permutexvar_ps(group.which, powers[n]));
    }
  });
}

// Adds a range of decoded groups to the sums of four rows with kInputs inputs.
template <std::int64_t kInputs>
void multiply_decoded(const std::uint8_t* groups, std::int64_t count, const formats::Bf16* x,
                      std::int64_t x_stride, __m512 (*running)[kBlockRows]) {
  __m512 sums[kBlockRows][kInputs];
  const formats::Bf16* inputs[kInputs];
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kInputs; ++i) {
    inputs[i] = x + i * x_stride;
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < kBlockRows; ++n) {
      sums[n][i] = running[i][n];
    }
  }
  for (std::int64_t group = 0; group < count; ++group, groups += kDecodedBytes) {
    __m512 parts[kBlockRows][kInputs];
#pragma GCC unroll 4
    for (std::int64_t set = 0; set < kQuads; ++set) {
      __m512bh v[kInputs];
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < kInputs; ++i) {
        v[i] = (__m512bh)_mm512_load_si512(inputs[i] + set * kWords);
      }
#pragma GCC unroll 8
      for (std::int64_t n = 0; n < kBlockRows; ++n) {
        const auto w = (__m512bh)_mm512_load_si512(groups + (set * kBlockRows + n) * 64);
#pragma GCC unroll 8
        for (std::int64_t i = 0; i < kInputs; ++i) {
          parts[n][i] = _mm512_dpbf16_ps(set == 0 ? _mm512_setzero_ps() : parts[n][i], w, v[i]);
        }
      }
    }
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < kBlockRows; ++n) {
      const __m512 scale = _mm512_load_ps(groups + (kQuads * kBlockRows + n) * 64);
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < kInputs; ++i) {
        sums[n][i] = _mm512_fmadd_ps(parts[n][i], scale, sums[n][i]);
      }
    }
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kInputs; ++i) {
      inputs[i] += kQuadGroup;
    }
  }
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kInputs; ++i) {
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < kBlockRows; ++n) {
      running[i][n] = sums[n][i];
    }
  }
}

void multiply_many(const Rows& rows, const Mxfp4Tile& tile, float* out) {
  alignas(64) std::uint8_t decoded[kDecodedGroups * kDecodedBytes];
  __m512 running[kTileInputs][kBlockRows];
  for (std::int64_t i = 0; i < tile.num_inputs; ++i) {
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < kBlockRows; ++n) {
      running[i][n] = _mm512_setzero_ps();
    }
  }
  constexpr std::int64_t kRange = kDecodedGroups * kQuadGroup;
  for (std::int64_t begin = 0; begin < tile.cols; begin += kRange) {
    const std::int64_t end = begin + kRange < tile.cols ? begin + kRange : tile.cols;
    const std::int64_t count = (end - begin + kQuadGroup - 1) / kQuadGroup;
    decode(rows, begin, end, decoded);
    const formats::Bf16* x = tile.x + begin;
    for (std::int64_t i = 0; i < tile.num_inputs;) {
      const std::int64_t taken = next_inputs(tile.num_inputs - i);
      taken == 2 ? multiply_decoded<2>(decoded, count, x, tile.x_stride, running + i)
                 : multiply_decoded<3>(decoded, count, x, tile.x_stride, running + i);
      x += taken * tile.x_stride;
      i += taken;
    }
  }
  for (std::int64_t i = 0; i < tile.num_inputs; ++i) {
    _mm_storeu_ps(out + i * kRowSums,
                  sum_lanes(running[i][0], running[i][1], running[i][2], running[i][3]));
  }
}

}  // namespace

void mxfp4_tile_avx512bf16(const Mxfp4Tile& tile) {
  Rows rows{tile.codes, tile.scales, tile.cols};
  if (tile.num_inputs == 1) {
    return multiply_few<kTileRows, 1>(rows, tile.x, tile.x_stride, tile.sums);
  }
  for (std::int64_t row = 0; row < kRowSums; row += kBlockRows) {
    float* out = tile.sums + row;
    tile.num_inputs <= kFewInputs ? multiply_anew(rows, tile, out) : multiply_many(rows, tile, out);
    rows.codes += kBlockRows * tile.cols / 2;
    rows.scales += kBlockRows * tile.cols / kScaleBlock;
  }
}

}  // namespace nibble::kernels

#endif  // defined(__x86_64__)
