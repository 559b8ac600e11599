// For files that are built for AVX-512 alone: everything here has internal linkage.
#pragma once

#include <immintrin.h>

namespace nibble::kernels {
namespace {

// The sums of the lanes of four vectors. Each is ((0 + 2) + (1 + 3)) over the lanes of every 128
// bits, then over the four of these likewise: the same order for each, whatever the others hold.
inline __m128 sum_lanes(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512 lanes =
      _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xEE));
  const __m256 half =
      _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

}  // namespace
}  // namespace nibble::kernels
