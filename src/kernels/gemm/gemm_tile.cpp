#include "kernels/gemm/gemm_tile.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>

#include "kernels/common/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/gemm_tile.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/common/vector_element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Tag>;
constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(Tag()));
// Sums of a group live in registers: 32 of them with AVX-512 and NEON, else 16.
constexpr std::int32_t kGroupInputs = kLanes == 16 ? 6 : 2;

// The last k % kLanes elements, then zeros.
template <typename T>
HWY_INLINE Vector load_tail(const T* from, std::int32_t count) {
  HWY_ALIGN T padded[kLanes] = {};
  std::memcpy(padded, from, static_cast<std::size_t>(count) * sizeof(T));
  return load_f32(Tag(), padded);
}

// One step of every sum of a group.
template <std::int32_t kRows, std::int32_t kInputs, typename LoadW, typename LoadX>
HWY_INLINE void step(Vector (&sums)[kRows][kInputs], LoadW&& load_w, LoadX&& load_x) {
  Vector x[kInputs];
#pragma GCC unroll 8
  for (std::int32_t i = 0; i < kInputs; ++i) {
    x[i] = load_x(i);
  }
#pragma GCC unroll 8
  for (std::int32_t n = 0; n < kRows; ++n) {
    const Vector w = load_w(n);
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
      sums[n][i] = hn::MulAdd(w, x[i], sums[n][i]);
    }
  }
}

template <typename T>
struct Rows {
  const T* first = nullptr;
  std::int64_t stride = 0;
  HWY_INLINE const T* at(std::int64_t row, std::int64_t k) const {
    return first + row * stride + k;
  }
  HWY_INLINE Vector load(std::int64_t row, std::int64_t k) const {
    return load_f32(Tag(), at(row, k));
  }
  void skip(std::int64_t rows) { first += rows * stride; }
};

template <std::int32_t kRows, std::int32_t kInputs, typename W, typename X>
HWY_NOINLINE void group(W w, Rows<X> x, float* out) {
  const Tag d;
  const auto k_end = static_cast<std::int32_t>(w.stride);
  Vector sums[kRows][kInputs];
#pragma GCC unroll 8
  for (std::int32_t n = 0; n < kRows; ++n) {
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
      sums[n][i] = hn::Zero(d);
    }
  }
  std::int32_t k = 0;
  for (; k + kLanes <= k_end; k += kLanes) {
    step<kRows, kInputs>(
        sums,
        [&](std::int32_t n) HWY_ATTR {
          hwy::Prefetch(w.at(n + kTileRows, k));  // the next tile
          return w.load(n, k);
        },
        [&](std::int32_t i) HWY_ATTR { return x.load(i, k); });
  }
  if (k < k_end) {
    step<kRows, kInputs>(
        sums, [&](std::int32_t n) HWY_ATTR { return load_tail(w.at(n, k), k_end - k); },
        [&](std::int32_t i) HWY_ATTR { return load_tail(x.at(i, k), k_end - k); });
  }
#pragma GCC unroll 8
  for (std::int32_t n = 0; n < kRows; ++n) {
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
      out[i * kTileRows + n] = hn::GetLane(hn::SumOfLanes(d, sums[n][i]));
    }
  }
}

// All inputs of a tile against kRows weight rows, in groups of at most kGroupInputs.
template <std::int32_t kRows, typename W, typename X>
void inputs(W w, Rows<X> x, std::int32_t num_inputs, float* out) {
  while (num_inputs > 0) {
    const std::int32_t taken = std::min(num_inputs, kGroupInputs);
    switch (taken) {
      case 1: group<kRows, 1>(w, x, out); break;
      case 2: group<kRows, 2>(w, x, out); break;
#if HWY_MAX_BYTES >= 64
      case 3: group<kRows, 3>(w, x, out); break;
      case 4: group<kRows, 4>(w, x, out); break;
      case 5: group<kRows, 5>(w, x, out); break;
      default: group<kRows, 6>(w, x, out); break;
#endif
    }
    x.first += taken * x.stride;
    out += taken * kTileRows;
    num_inputs -= taken;
  }
}

template <typename W, typename X>
void tile_of(const GemmTile& tile, W w) {
  const Rows<X> x{static_cast<const X*>(tile.x), tile.x_stride};
  std::int32_t row = 0;
  if (tile.num_rows == kTileRows && tile.num_inputs == 1) {
    group<kTileRows, 1>(w, x, tile.sums);
    return;
  }
  for (; row + 4 <= tile.num_rows; row += 4, w.skip(4)) {
    inputs<4>(w, x, tile.num_inputs, tile.sums + row);
  }
  for (; row < tile.num_rows; ++row, w.skip(1)) {
    inputs<1>(w, x, tile.num_inputs, tile.sums + row);
  }
}

template <typename W>
void tile_with(const GemmTile& tile, W w) {
  tile.x_dtype == DType::kF32 ? tile_of<W, float>(tile, w) : tile_of<W, formats::Bf16>(tile, w);
}

void run_tile(const GemmTile& tile) {
  if (tile.weight_dtype == DType::kF32) {
    tile_with(tile, Rows<float>{static_cast<const float*>(tile.weight), tile.k});
  } else {
    tile_with(tile, Rows<formats::Bf16>{static_cast<const formats::Bf16*>(tile.weight), tile.k});
  }
}

}  // namespace nibble::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::kernels {

HWY_EXPORT(run_tile);

void gemm_tile(const GemmTile& tile) { HWY_DYNAMIC_DISPATCH(run_tile)(tile); }

}  // namespace nibble::kernels
#endif  // HWY_ONCE
