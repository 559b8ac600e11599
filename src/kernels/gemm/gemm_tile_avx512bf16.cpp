// Built with flags of its own: nothing inline from elsewhere may be called here, lest the linker
// keep the copy that needs AVX-512.
#include "kernels/gemm/gemm_tile.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <bit>

#include "formats/bf16.h"
#include "formats/e2m1.h"

namespace nibble::kernels {
namespace {

// Sums of 4 x 4 leave registers for what a step needs; 4 x 6 spills and loses a third.
constexpr std::int32_t kPair = 32;          // values in a register
constexpr std::int32_t kGroup = 2 * kPair;  // e2m1 values of a step
constexpr std::int32_t kScaleBlock = 32;
constexpr std::int32_t kScales = 16;  // scales in a register

template <std::int32_t kRows, std::int32_t kInputs>
struct Sums {
  __m512 at[kRows][kInputs];
};

template <std::int32_t kRows, std::int32_t kInputs>
inline void clear(Sums<kRows, kInputs>& sums) {
#pragma GCC unroll 8
  for (std::int32_t n = 0; n < kRows; ++n) {
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
      sums.at[n][i] = _mm512_setzero_ps();
    }
  }
}

template <std::int32_t kRows, std::int32_t kInputs>
inline void store(const Sums<kRows, kInputs>& sums, float* out) {
#pragma GCC unroll 8
  for (std::int32_t n = 0; n < kRows; ++n) {
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
      out[i * kTileRows + n] = _mm512_reduce_add_ps(sums.at[n][i]);
    }
  }
}

inline __m512bh load_bf16(const formats::Bf16* from, __mmask32 mask) {
  return (__m512bh)_mm512_maskz_loadu_epi16(mask, from);
}

struct Bf16Tile {
  static constexpr std::int32_t kGroupInputs = 6;  // sums of a group live in registers

  const formats::Bf16* weight = nullptr;
  const formats::Bf16* x = nullptr;
  std::int64_t k = 0;
  std::int64_t x_stride = 0;

  explicit Bf16Tile(const GemmTile& tile)
      : weight(static_cast<const formats::Bf16*>(tile.weight)),
        x(static_cast<const formats::Bf16*>(tile.x)),
        k(tile.k),
        x_stride(tile.x_stride) {}
  void skip_rows(std::int64_t rows) { weight += rows * k; }
  void skip_inputs(std::int64_t inputs) { x += inputs * x_stride; }

  template <std::int32_t kRows, std::int32_t kInputs>
  inline void step(Sums<kRows, kInputs>& sums, std::int64_t at, __mmask32 mask) const {
    __m512bh inputs[kInputs];
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
      inputs[i] = load_bf16(x + i * x_stride + at, mask);
    }
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kRows; ++n) {
      const __m512bh w = load_bf16(weight + n * k + at, mask);
      _mm_prefetch(weight + (n + kTileRows) * k + at, _MM_HINT_T0);  // the next tile
#pragma GCC unroll 8
      for (std::int32_t i = 0; i < kInputs; ++i) {
        sums.at[n][i] = _mm512_dpbf16_ps(sums.at[n][i], w, inputs[i]);
      }
    }
  }

  template <std::int32_t kRows, std::int32_t kInputs>
  void multiply(float* out) const {
    Sums<kRows, kInputs> sums;
    clear(sums);
    std::int64_t at = 0;
    for (; at + kPair <= k; at += kPair) {
      step(sums, at, ~__mmask32{0});
    }
    if (at < k) {
      step(sums, at, (__mmask32{1} << (k - at)) - 1);
    }
    store(sums, out);
  }
};

// Each code twice, so that a fifth index bit does not matter.
struct CodeTable {
  alignas(64) std::uint16_t bits[kPair] = {};
};
constexpr CodeTable make_code_table() {
  CodeTable table;
  for (std::int32_t i = 0; i < kPair; ++i) {
    table.bits[i] = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(formats::kE2m1Values[static_cast<std::size_t>(i % 16)]) >> 16);
  }
  return table;
}
constexpr CodeTable kCodeTable = make_code_table();

struct E2m1Tile {
  static constexpr std::int32_t kGroupInputs = 4;  // scales and codes need some too

  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  const formats::Bf16* x = nullptr;
  std::int64_t k = 0;
  std::int64_t x_stride = 0;

  explicit E2m1Tile(const GemmTile& tile)
      : codes(static_cast<const std::uint8_t*>(tile.weight)),
        scales(tile.scales),
        x(static_cast<const formats::Bf16*>(tile.x)),
        k(tile.k),
        x_stride(tile.x_stride) {}
  void skip_rows(std::int64_t rows) {
    codes += rows * k / 2;
    scales += rows * k / kScaleBlock;
  }
  void skip_inputs(std::int64_t inputs) { x += inputs * x_stride; }

  // Powers of two of the 16 blocks from `at` on; byte 0 is a subnormal, byte 255 NaN: the bit below
  // the exponent makes both.
  inline __m512 load_scales(std::int64_t row, std::int64_t at) const {
    const std::int64_t left = (k - at) / kScaleBlock;
    const auto mask = static_cast<__mmask16>(left >= kScales ? 0xFFFF : (1 << left) - 1);
    const std::uint8_t* from = scales + (row * k + at) / kScaleBlock;
    const __m512i exponents = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, from));
    const __m512i half = _mm512_set1_epi32(0x00400000);
    const __m512i powers = _mm512_max_epu32(_mm512_slli_epi32(exponents, 23), half);
    const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(exponents, _mm512_set1_epi32(255));
    return _mm512_castsi512_ps(_mm512_mask_or_epi32(powers, is_nan, powers, half));
  }

  // The 64 values from `at` on; `kIsHalf`: only 32 are left. `which` picks each lane's scale.
  template <bool kIsHalf, std::int32_t kRows, std::int32_t kInputs>
  inline void step(Sums<kRows, kInputs>& sums, std::int64_t at, const __m512 (&powers)[kRows],
                   __m512i which) const {
    const __m512i table = _mm512_load_si512(kCodeTable.bits);
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kRows; ++n) {
      const auto* from = reinterpret_cast<const __m256i*>(codes + (n * k + at) / 2);
      const __m256i packed =
          kIsHalf ? _mm256_maskz_loadu_epi8(0xFFFF, from) : _mm256_loadu_si256(from);
      _mm_prefetch(codes + (n * k + at + kTileRows * k) / 2, _MM_HINT_T0);  // the next tile
      const __m512i pairs = _mm512_cvtepu8_epi16(packed);
      const auto even = (__m512bh)_mm512_permutexvar_epi16(pairs, table);
      const auto odd = (__m512bh)_mm512_permutexvar_epi16(_mm512_srli_epi16(pairs, 4), table);
      const __m512 scale = _mm512_permutexvar_ps(which, powers[n]);
#pragma GCC unroll 8
      for (std::int32_t i = 0; i < kInputs; ++i) {
        const formats::Bf16* inputs = x + i * x_stride + at;
        __m512 sum =
            _mm512_dpbf16_ps(_mm512_setzero_ps(), even, (__m512bh)_mm512_loadu_si512(inputs));
        sum = _mm512_dpbf16_ps(sum, odd, (__m512bh)_mm512_loadu_si512(inputs + kPair));
        sums.at[n][i] = _mm512_fmadd_ps(sum, scale, sums.at[n][i]);
      }
    }
  }

  template <std::int32_t kRows, std::int32_t kInputs>
  void multiply(float* out) const {
    Sums<kRows, kInputs> sums;
    clear(sums);
    __m512 powers[kRows];
    const __m512i first = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    for (std::int64_t begin = 0; begin < k; begin += kScales * kScaleBlock) {
#pragma GCC unroll 8
      for (std::int32_t n = 0; n < kRows; ++n) {
        powers[n] = load_scales(n, begin);
      }
      __m512i which = first;
      const std::int64_t left = k - begin;
      const std::int64_t end =
          begin + (left < kScales * kScaleBlock ? left : kScales * kScaleBlock);
      std::int64_t at = begin;
      for (; at + kGroup <= end; at += kGroup) {
        step<false>(sums, at, powers, which);
        which = _mm512_add_epi32(which, _mm512_set1_epi32(2));
      }
      if (at < end) {
        step<true>(sums, at, powers, which);
      }
    }
    store(sums, out);
  }
};

template <std::int32_t kRows, typename Tile>
void inputs_of(Tile tile, std::int32_t num_inputs, float* out) {
  constexpr std::int32_t kMost = Tile::kGroupInputs;
  for (; num_inputs >= kMost; num_inputs -= kMost) {
    tile.template multiply<kRows, kMost>(out);
    tile.skip_inputs(kMost);
    out += kMost * kTileRows;
  }
  switch (num_inputs) {
    case 5: return tile.template multiply < kRows, kMost < 5 ? 1 : 5 > (out);
    case 4: return tile.template multiply < kRows, kMost < 5 ? 1 : 4 > (out);
    case 3: return tile.template multiply<kRows, 3>(out);
    case 2: return tile.template multiply<kRows, 2>(out);
    case 1: return tile.template multiply<kRows, 1>(out);
    default: return;
  }
}

template <typename Tile>
void run_tile(Tile tile, const GemmTile& given) {
  if (given.num_rows == kTileRows && given.num_inputs == 1) {
    return tile.template multiply<kTileRows, 1>(given.sums);
  }
  std::int32_t row = 0;
  for (; row + 4 <= given.num_rows; row += 4) {
    inputs_of<4>(tile, given.num_inputs, given.sums + row);
    tile.skip_rows(4);
  }
  for (; row < given.num_rows; ++row) {
    inputs_of<1>(tile, given.num_inputs, given.sums + row);
    tile.skip_rows(1);
  }
}

}  // namespace

void gemm_tile_avx512bf16(const GemmTile& tile) {
  if (tile.weight_dtype == DType::kE2M1) {
    run_tile(E2m1Tile(tile), tile);
  } else {
    run_tile(Bf16Tile(tile), tile);
  }
}

}  // namespace nibble::kernels

#endif  // defined(__x86_64__)
