// Built with flags of its own: nothing inline from elsewhere may be called here, lest the linker
// keep the copy that needs AVX-512.
#include "kernels/gemm/gemm_tile.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "formats/bf16.h"
#include "kernels/common/reduce_avx512-inl.h"

namespace nibble::kernels {
namespace {

constexpr std::int64_t kPairs = 32;  // bf16 numbers in a register
constexpr std::int32_t kBlockRows = 4;
constexpr std::int32_t kBlockInputs = 6;  // 24 sums in registers, and what a step needs
// Columns that a block takes at a time, so that its rows and inputs stay in the first-level cache.
constexpr std::int64_t kRange = 1024;

inline __m512bh load_bf16(const formats::Bf16* from, __mmask32 mask) {
  return (__m512bh)_mm512_maskz_loadu_epi16(mask, from);
}
inline __m512bh load_bf16(const formats::Bf16* from) { return (__m512bh)_mm512_loadu_si512(from); }

struct Operands {
  const formats::Bf16* weight = nullptr;
  const formats::Bf16* x = nullptr;
  std::int64_t k = 0;
  std::int64_t x_stride = 0;
};

template <std::int32_t kRows, std::int32_t kInputs>
struct Block {
  __m512 sums[kRows][kInputs];
  const formats::Bf16* weights[kRows];
  const formats::Bf16* inputs[kInputs];

  explicit Block(const Operands& at) {
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kRows; ++n) {
      weights[n] = at.weight + n * at.k;
    }
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
      inputs[i] = at.x + i * at.x_stride;
    }
  }

  inline void clear() {
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kRows; ++n) {
#pragma GCC unroll 8
      for (std::int32_t i = 0; i < kInputs; ++i) {
        sums[n][i] = _mm512_setzero_ps();
      }
    }
  }

  // The element of `running` for row n and input i is at [i * kTileRows + n].
  inline void load(const __m512* running) {
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kRows; ++n) {
#pragma GCC unroll 8
      for (std::int32_t i = 0; i < kInputs; ++i) {
        sums[n][i] = running[i * kTileRows + n];
      }
    }
  }
  inline void store(__m512* running) const {
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kRows; ++n) {
#pragma GCC unroll 8
      for (std::int32_t i = 0; i < kInputs; ++i) {
        running[i * kTileRows + n] = sums[n][i];
      }
    }
  }

  template <typename Load>
  inline void step(Load&& load) {
    __m512bh values[kInputs];
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
      values[i] = load(inputs[i]);
    }
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kRows; ++n) {
      const __m512bh w = load(weights[n]);
#pragma GCC unroll 8
      for (std::int32_t i = 0; i < kInputs; ++i) {
        sums[n][i] = _mm512_dpbf16_ps(sums[n][i], w, values[i]);
      }
    }
  }

  // Columns [0, count). Meanwhile asks for kAhead rows of a tile to come, from `next` on.
  template <std::int32_t kAhead>
  inline void multiply(std::int64_t count, const formats::Bf16* next, std::int64_t k) {
    std::int64_t at = 0;
    for (; at + kPairs <= count; at += kPairs) {
      step([&](const formats::Bf16* from) { return load_bf16(from + at); });
#pragma GCC unroll 8
      for (std::int32_t n = 0; n < kAhead; ++n) {
        _mm_prefetch(next + n * k + at, _MM_HINT_T0);
      }
    }
    if (at < count) {
      const auto mask = static_cast<__mmask32>((std::uint64_t{1} << (count - at)) - 1);
      step([&](const formats::Bf16* from) { return load_bf16(from + at, mask); });
    }
  }
};

template <std::int32_t kAhead, std::int32_t kRows, std::int32_t kInputs>
void multiply(const Operands& at, std::int64_t count, std::int32_t next_row, __m512* running) {
  Block<kRows, kInputs> block(at);
  block.load(running);
  block.template multiply<kAhead>(count, at.weight + (kTileRows + next_row) * at.k, at.k);
  block.store(running);
}

// Every input with kRows rows, over `count` columns. The rows of the next tile are asked for a part
// at a time, so that the memory is busy throughout.
template <std::int32_t kRows>
class Inputs {
 public:
  Inputs(const Operands& at, std::int64_t count, __m512* running)
      : at_(at), count_(count), running_(running) {}

  void run(std::int32_t num_inputs) {
    const std::int32_t blocks = (num_inputs + kBlockInputs - 1) / kBlockInputs;
    rows_ahead_ = blocks == 1 ? kRows : blocks == 2 && kRows > 1 ? kRows / 2 : 1;
    for (std::int32_t left = blocks; left > 0; --left) {  // as even as they go
      const std::int32_t taken = (num_inputs + left - 1) / left;
      take(taken);
      num_inputs -= taken;
    }
  }

 private:
  void take(std::int32_t num_inputs) {
    switch (num_inputs) {
      case 6: return multiply_block<6>();
      case 5: return multiply_block<5>();
      case 4: return multiply_block<4>();
      case 3: return multiply_block<3>();
      case 2: return multiply_block<2>();
      default: return multiply_block<1>();
    }
  }

  template <std::int32_t kInputs>
  void multiply_block() {
    if (next_row_ >= kRows) {
      multiply<0, kRows, kInputs>(at_, count_, 0, running_);
    } else if (rows_ahead_ == kRows) {
      multiply<kRows, kRows, kInputs>(at_, count_, next_row_, running_);
    } else if constexpr (kRows > 1) {
      rows_ahead_ == 1 ? multiply<1, kRows, kInputs>(at_, count_, next_row_, running_)
                       : multiply<kRows / 2, kRows, kInputs>(at_, count_, next_row_, running_);
    }
    next_row_ += rows_ahead_;
    at_.x += kInputs * at_.x_stride;
    running_ += std::int64_t{kInputs} * kTileRows;
  }

  Operands at_;
  std::int64_t count_ = 0;
  __m512* running_ = nullptr;
  std::int32_t rows_ahead_ = 0;  // asked for by each block
  std::int32_t next_row_ = 0;
};

// One input with all rows of a tile: the shape of decoding, bound by the memory.
void multiply_one(const Operands& at, float* out) {
  Block<kTileRows, 1> block(at);
  block.clear();
  block.multiply<kTileRows>(at.k, at.weight + kTileRows * at.k, at.k);
#pragma GCC unroll 8
  for (std::int32_t n = 0; n < kTileRows; n += 4) {
    _mm_storeu_ps(out + n, sum_lanes(block.sums[n][0], block.sums[n + 1][0], block.sums[n + 2][0],
                                     block.sums[n + 3][0]));
  }
}

void multiply_many(const Operands& operands, const GemmTile& tile) {
  __m512 running[kTileInputs * kTileRows];
  for (std::int32_t i = 0; i < tile.num_inputs * kTileRows; ++i) {
    running[i] = _mm512_setzero_ps();
  }
  // Few inputs wait for the memory, which streams best along whole rows.
  const std::int64_t range = tile.num_inputs <= 2 * kBlockInputs ? operands.k : kRange;
  for (std::int64_t begin = 0; begin < operands.k; begin += range) {
    const std::int64_t left = operands.k - begin;
    const std::int64_t count = left < range ? left : range;
    Operands at = operands;
    at.weight += begin;
    at.x += begin;
    std::int32_t row = 0;
    for (; row + kBlockRows <= tile.num_rows; row += kBlockRows) {
      Inputs<kBlockRows>(at, count, running + row).run(tile.num_inputs);
      at.weight += kBlockRows * at.k;
    }
    for (; row < tile.num_rows; ++row) {
      Inputs<1>(at, count, running + row).run(tile.num_inputs);
      at.weight += at.k;
    }
  }
  for (std::int64_t i = 0; i < tile.num_inputs; ++i) {
    for (std::int64_t n = 0; n < kTileRows; n += 4) {
      const __m512* sums = running + i * kTileRows + n;
      _mm_storeu_ps(tile.sums + i * kTileRows + n, sum_lanes(sums[0], sums[1], sums[2], sums[3]));
    }
  }
}

}  // namespace

void gemm_tile_avx512bf16(const GemmTile& tile) {
  const Operands operands{static_cast<const formats::Bf16*>(tile.weight),
                          static_cast<const formats::Bf16*>(tile.x), tile.k, tile.x_stride};
  if (tile.num_inputs == 1 && tile.num_rows == kTileRows) {
    multiply_one(operands, tile.sums);
  } else {
    multiply_many(operands, tile);
  }
}

}  // namespace nibble::kernels

#endif  // defined(__x86_64__)
