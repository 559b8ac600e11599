#include "kernels/probe/dot_loops.h"

#include <array>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nibble::kernels {
namespace {

#if defined(__x86_64__)

// Independent sums: enough to hide a latency of 4 to 6 cycles with two units.
constexpr int kSums = 12;

// The sums stay in registers because nothing takes their address; only their total is handed out.

__attribute__((target("avx2,fma"))) void run_avx2(std::int64_t rounds) {
  const __m256 a = _mm256_set1_ps(0.5F);
  const __m256 b = _mm256_set1_ps(1.0F);
  __m256 sums[kSums];
  for (__m256& sum : sums) {
    sum = b;
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(sum, a, b);
    }
  }
  __m256 total = sums[0];
  for (const __m256& sum : sums) {
    total = _mm256_add_ps(total, sum);
  }
  __asm__ volatile("" : : "x"(total));  // the result is wanted
}

__attribute__((target("avx512f"))) void run_avx512(std::int64_t rounds) {
  const __m512 a = _mm512_set1_ps(0.5F);
  const __m512 b = _mm512_set1_ps(1.0F);
  __m512 sums[kSums];
  for (__m512& sum : sums) {
    sum = b;
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512& sum : sums) {
      sum = _mm512_fmadd_ps(sum, a, b);
    }
  }
  __m512 total = sums[0];
  for (const __m512& sum : sums) {
    total = _mm512_add_ps(total, sum);
  }
  __asm__ volatile("" : : "v"(total));  // the result is wanted
}

__attribute__((target("avx512f,avx512vnni"))) void run_vnni(std::int64_t rounds) {
  const __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(-2);
  __m512i sums[kSums];
  for (__m512i& sum : sums) {
    sum = a;
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512i& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, a, b);
    }
  }
  __m512i total = sums[0];
  for (const __m512i& sum : sums) {
    total = _mm512_add_epi32(total, sum);
  }
  __asm__ volatile("" : : "v"(total));  // the result is wanted
}

__attribute__((target("avx512f,avx512bf16"))) void run_bf16(std::int64_t rounds) {
  // 1.0 in every place. The sums grow and lose precision; the time does not depend on it.
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3F80));
  __m512 sums[kSums];
  for (__m512& sum : sums) {
    sum = _mm512_set1_ps(1.0F);
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, ones, ones);
    }
  }
  __m512 total = sums[0];
  for (const __m512& sum : sums) {
    total = _mm512_add_ps(total, sum);
  }
  __asm__ volatile("" : : "v"(total));  // the result is wanted
}

// Eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::array<std::uint8_t, 14> reserved{};
  std::array<std::uint16_t, 16> row_bytes{64, 64, 64, 64, 64, 64, 64, 64};
  std::array<std::uint8_t, 16> rows{16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// Zero operands: products of tiles take the same time whatever they hold.
__attribute__((target("amx-tile"))) void begin_tiles() {
  static const TileConfig kConfig;
  _tile_loadconfig(&kConfig);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
}

__attribute__((target("amx-tile,amx-bf16"))) void run_amx_bf16(std::int64_t rounds) {
  begin_tiles();
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
}

__attribute__((target("amx-tile,amx-int8"))) void run_amx_int8(std::int64_t rounds) {
  begin_tiles();
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbusd(0, 4, 5);
    _tile_dpbusd(1, 4, 5);
    _tile_dpbusd(2, 4, 5);
    _tile_dpbusd(3, 4, 5);
  }
  _tile_release();
}

#endif

}  // namespace

DotLoop dot_loop(CpuIsa isa) {
#if defined(__x86_64__)
  constexpr double kTile = 16 * 16 * 2;  // outputs of a tile, multiply and add
  switch (isa) {
    case CpuIsa::kAny: return {};
    case CpuIsa::kAvx2: return {run_avx2, kSums * 8 * 2.0};
    case CpuIsa::kAvx512: return {run_avx512, kSums * 16 * 2.0};
    case CpuIsa::kAvx512Vnni: return {run_vnni, kSums * 64 * 2.0};
    case CpuIsa::kAvx512Bf16: return {run_bf16, kSums * 32 * 2.0};
    case CpuIsa::kAmxBf16: return {run_amx_bf16, 4 * 32 * kTile};
    case CpuIsa::kAmxInt8: return {run_amx_int8, 4 * 64 * kTile};
  }
#else
  (void)isa;
#endif
  return {};
}

}  // namespace nibble::kernels
