#include "kernels/moe/moe_tile.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <array>

#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/ue8m0.h"
#include "kernels/common/element.h"
#include "kernels/common/highway_targets.h"
#include "kernels/gemm/gemm_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe/moe_tile.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/common/vector_element-inl.h"

#ifndef NIBBLE_KERNELS_MOE_MOE_TILE_ONCE
#define NIBBLE_KERNELS_MOE_MOE_TILE_ONCE
namespace nibble::kernels {

// Twice the value of each code is a small integer, so the scales are halved: exact, 2^-128 too.
inline constexpr std::array<std::int8_t, 16> kDoubledCodes = {0, 1,  2,  3,  4,  6,  8,  12,
                                                              0, -1, -2, -3, -4, -6, -8, -12};

template <bool kIsHalved>
constexpr std::array<float, 256> scale_table() {
  std::array<float, 256> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    const float scale = formats::ue8m0_to_f32(static_cast<std::uint8_t>(code));
    table[code] = kIsHalved ? 0.5F * scale : scale;
  }
  return table;
}
inline constexpr std::array<float, 256> kScales = scale_table<false>();
inline constexpr std::array<float, 256> kHalfScales = scale_table<true>();

constexpr std::array<float, 256> e4m3_table() {
  std::array<float, 256> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    table[code] = formats::e4m3_to_f32(static_cast<std::uint8_t>(code));
  }
  return table;
}
inline constexpr std::array<float, 256> kE4m3Scales = e4m3_table();

// Rows up to this long are decoded to the stack once for all inputs: 4 rows, 64 KiB.
inline constexpr std::int32_t kMaxDecodedCols = 4096;

}  // namespace nibble::kernels
#endif  // NIBBLE_KERNELS_MOE_MOE_TILE_ONCE

HWY_BEFORE_NAMESPACE();
namespace nibble::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Tag>;
constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(Tag()));
constexpr std::int32_t kBlock = 32;
constexpr std::int32_t kParts = kBlock / kLanes;  // vectors of a block
constexpr std::int32_t kGroupInputs = kLanes == 16 ? 6 : 2;
constexpr std::int32_t kGroupRows = 4;

// The sources give the values of one block of one row, in split order.
struct Bf16Source {
  const formats::Bf16* first = nullptr;
  std::int64_t cols = 0;

  HWY_INLINE void load(std::int64_t row, std::int64_t block, Vector (&out)[kParts]) const {
    const formats::Bf16* from = first + row * cols + block * kBlock;
#if HWY_TARGET == HWY_SCALAR
    for (std::int32_t i = 0; i < kBlock; ++i) {
      out[split_position(i)] = load_f32(Tag(), from + i);
    }
#else
    const hn::RebindToUnsigned<Tag> du;
    const auto* pairs = reinterpret_cast<const std::uint8_t*>(from);
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kParts / 2; ++i) {
      const hn::Repartition<std::uint8_t, Tag> db;
      const auto both = hn::BitCast(du, hn::LoadU(db, pairs + i * kLanes * 4));
      out[i] = hn::BitCast(Tag(), hn::ShiftLeft<16>(both));
      out[kParts / 2 + i] = hn::BitCast(Tag(), hn::And(both, hn::Set(du, 0xFFFF0000U)));
    }
#endif
  }
  void advance(std::int64_t rows) { first += rows * cols; }
};

#if HWY_TARGET != HWY_AVX3
// Twice the value of each code of 32, in split order: whole numbers.
HWY_INLINE void unpack_doubled(const std::uint8_t* from, Vector (&out)[kParts]) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int32_t i = 0; i < kBlock / 2; ++i) {
    out[i] = hn::Set(Tag(), kDoubledCodes[from[i] & 15U]);
    out[kBlock / 2 + i] = hn::Set(Tag(), kDoubledCodes[from[i] >> 4U]);
  }
#else
  const hn::FixedTag<std::uint8_t, 16> db;
  const hn::FixedTag<std::int8_t, 16> di;
  const auto table = hn::LoadU(di, kDoubledCodes.data());
  const auto pairs = hn::LoadU(db, from);
  HWY_ALIGN std::int8_t doubled[kBlock];
  hn::Store(hn::TableLookupBytes(table, hn::BitCast(di, hn::And(pairs, hn::Set(db, 15)))), di,
            doubled);
  hn::Store(hn::TableLookupBytes(table, hn::BitCast(di, hn::ShiftRight<4>(pairs))), di,
            doubled + 16);
  const hn::Rebind<std::int8_t, Tag> dp;
  const hn::RebindToSigned<Tag> dw;
#pragma GCC unroll 8
  for (std::int32_t i = 0; i < kParts; ++i) {
    out[i] = hn::ConvertTo(Tag(), hn::PromoteTo(dw, hn::LoadU(dp, doubled + i * kLanes)));
  }
#endif
}
#else
// One look-up for 16 values: a dword's low four bits select, the low nibble as it is, the high one
// after a shift.
HWY_INLINE void look_up(const std::uint8_t* from, Vector table, Vector (&out)[kParts]) {
  const __m512i index =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  out[0] = Vector{_mm512_permutexvar_ps(index, table.raw)};
  out[1] = Vector{_mm512_permutexvar_ps(_mm512_srli_epi32(index, 4), table.raw)};
}
#endif

struct Mxfp4Source {
  const std::uint8_t* blocks = nullptr;
  const std::uint8_t* scales = nullptr;
  std::int64_t num_blocks = 0;

  HWY_INLINE void load(std::int64_t row, std::int64_t block, Vector (&out)[kParts]) const {
    const std::int64_t at = row * num_blocks + block;
    const std::uint8_t* from = blocks + at * 16;
    hwy::Prefetch(from + kTileRows * num_blocks * 16);  // the next tile
#if HWY_TARGET == HWY_AVX3
    const auto codes = hn::LoadU(Tag(), formats::kE2m1Values.data());
    look_up(from, hn::Mul(codes, hn::Set(Tag(), kScales[scales[at]])), out);
#else
    unpack_doubled(from, out);
    const auto scale = hn::Set(Tag(), kHalfScales[scales[at]]);
#pragma GCC unroll 32
    for (std::int32_t i = 0; i < kParts; ++i) {
      out[i] = hn::Mul(out[i], scale);
    }
#endif
  }
  void advance(std::int64_t rows) {
    blocks += rows * num_blocks * 16;
    scales += rows * num_blocks;
  }
};

// 32 columns are two NVFP4 blocks: of the 16 values of each half of split order the first 8 are the
// one's, the last 8 the other's. Rounded once, after the step, as formats/nvfp4.h has it.
struct Nvfp4Source {
  const std::uint8_t* blocks = nullptr;
  const std::uint8_t* scales = nullptr;
  std::int64_t num_blocks = 0;  // of 32 columns
  float global = 0.0F;

  HWY_INLINE void load(std::int64_t row, std::int64_t block, Vector (&out)[kParts]) const {
    const Tag d;
    const std::int64_t at = row * num_blocks + block;
    const std::uint8_t* from = blocks + at * 16;
    hwy::Prefetch(from + kTileRows * num_blocks * 16);  // the next tile
    const Vector steps[2] = {hn::Set(d, kE4m3Scales[scales[2 * at]] * global),
                             hn::Set(d, kE4m3Scales[scales[2 * at + 1]] * global)};
#if HWY_TARGET == HWY_AVX3
    const auto both = hn::IfThenElse(hn::FirstN(d, 8), steps[0], steps[1]);
    look_up(from, hn::LoadU(d, formats::kE2m1Values.data()), out);
    out[0] = hn::Mul(out[0], both);
    out[1] = hn::Mul(out[1], both);
#else
    unpack_doubled(from, out);
#pragma GCC unroll 32
    for (std::int32_t i = 0; i < kParts; ++i) {
      const auto value = hn::Mul(out[i], hn::Set(d, 0.5F));
      out[i] = hn::Mul(value, steps[i * kLanes % (kBlock / 2) / 8]);
    }
#endif
  }
  void advance(std::int64_t rows) {
    blocks += rows * num_blocks * 16;
    scales += rows * num_blocks * 2;
  }
};

struct DecodedSource {
  const float* first = nullptr;
  std::int64_t cols = 0;

  HWY_INLINE void load(std::int64_t row, std::int64_t block, Vector (&out)[kParts]) const {
#pragma GCC unroll 32
    for (std::int32_t i = 0; i < kParts; ++i) {
      out[i] = hn::Load(Tag(), first + row * cols + block * kBlock + i * kLanes);
    }
  }
};

// Inputs of a tile that one call takes, in split order.
struct Inputs {
  const float* first = nullptr;
  std::int64_t stride = 0;
  std::int32_t count = 0;
  std::int64_t num_blocks = 0;
};

template <std::int32_t kRows, std::int32_t kInputs, typename Source>
HWY_NOINLINE void group(const Source& source, const Inputs& inputs, float* out) {
  const Tag d;
  Vector sums[kRows][kInputs];
#pragma GCC unroll 8
  for (std::int32_t n = 0; n < kRows; ++n) {
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
      sums[n][i] = hn::Zero(d);
    }
  }
  for (std::int64_t block = 0; block < inputs.num_blocks; ++block) {
#pragma GCC unroll 8
    for (std::int32_t n = 0; n < kRows; ++n) {
      Vector w[kParts];
      source.load(n, block, w);
#pragma GCC unroll 8
      for (std::int32_t i = 0; i < kInputs; ++i) {
#pragma GCC unroll 32
        for (std::int32_t part = 0; part < kParts; ++part) {
          const float* x = inputs.first + i * inputs.stride + block * kBlock + part * kLanes;
          sums[n][i] = hn::MulAdd(w[part], hn::Load(d, x), sums[n][i]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (std::int32_t n = 0; n < kRows; ++n) {
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < kInputs; ++i) {
      out[i * kTileRows + n] = hn::GetLane(hn::SumOfLanes(d, sums[n][i]));
    }
  }
}

template <typename Source>
void groups(const Source& source, Inputs inputs, float* out) {
  while (inputs.count > 0) {
    const std::int32_t taken = std::min(inputs.count, kGroupInputs);
    switch (taken) {
      case 1: group<kGroupRows, 1>(source, inputs, out); break;
      case 2: group<kGroupRows, 2>(source, inputs, out); break;
#if HWY_MAX_BYTES >= 64
      case 3: group<kGroupRows, 3>(source, inputs, out); break;
      case 4: group<kGroupRows, 4>(source, inputs, out); break;
      case 5: group<kGroupRows, 5>(source, inputs, out); break;
      default: group<kGroupRows, 6>(source, inputs, out); break;
#endif
    }
    inputs.first += taken * inputs.stride;
    inputs.count -= taken;
    out += taken * kTileRows;
  }
}

template <typename Source>
HWY_NOINLINE void decoded_groups(const Source& source, Inputs inputs, float* out) {
  HWY_ALIGN float decoded[kGroupRows * kMaxDecodedCols];
  const std::int64_t cols = inputs.num_blocks * kBlock;
  for (std::int32_t n = 0; n < kGroupRows; ++n) {
    for (std::int64_t block = 0; block < inputs.num_blocks; ++block) {
      Vector w[kParts];
      source.load(n, block, w);
#pragma GCC unroll 32
      for (std::int32_t part = 0; part < kParts; ++part) {
        hn::Store(w[part], Tag(), decoded + n * cols + block * kBlock + part * kLanes);
      }
    }
  }
  groups(DecodedSource{decoded, cols}, inputs, out);
}

template <typename Source>
void tile_of(Source source, const ExpertTile& tile) {
  const Inputs inputs{reinterpret_cast<const float*>(tile.x),
                      tile.x_row_bytes / std::int64_t{sizeof(float)}, tile.num_inputs,
                      tile.cols / kBlock};
  if (tile.num_inputs == 1) {
    group<kTileRows, 1>(source, inputs, tile.sums);
    return;
  }
  for (std::int32_t row = 0; row < kTileRows; row += kGroupRows) {
    if (tile.num_inputs <= kGroupInputs || tile.cols > kMaxDecodedCols) {
      groups(source, inputs, tile.sums + row);
    } else {
      decoded_groups(source, inputs, tile.sums + row);
    }
    source.advance(kGroupRows);
  }
}

void run_tile(const ExpertTile& tile) {
  if (const auto* bf16 = std::get_if<Bf16Rows>(tile.weight)) {
    tile_of(Bf16Source{bf16->values + tile.row * tile.cols, tile.cols}, tile);
    return;
  }
  const std::int64_t num_blocks = tile.cols / kBlock;
  if (const auto* nvfp4 = std::get_if<Nvfp4Rows>(tile.weight)) {
    tile_of(Nvfp4Source{nvfp4->blocks + tile.row * num_blocks * (kBlock / 2),
                        nvfp4->scales + tile.row * num_blocks * 2, num_blocks,
                        nvfp4->globals[tile.expert]},
            tile);
    return;
  }
  const auto& mxfp4 = std::get<Mxfp4Rows>(*tile.weight);
  tile_of(Mxfp4Source{mxfp4.blocks + tile.row * num_blocks * (kBlock / 2),
                      mxfp4.scales + tile.row * num_blocks, num_blocks},
          tile);
}

// NaN goes through: neither comparison holds for it, and the product keeps it.
void run_activate(const float* sums, const float* bias, std::int32_t count, ActivationLimits limits,
                  float* out) {
  const Tag d;
  const auto limit = hn::Set(d, limits.limit);
  const auto low = hn::Neg(limit);
  const auto one = hn::Set(d, 1.0F);
  const auto most = hn::Set(d, 104.0F);  // beyond, the exponential is Inf and its code is wrong
  for (std::int32_t i = 0; i < count; i += kLanes) {
    Vector g;
    Vector l;
    Vector gate_bias;
    Vector up_bias;
    hn::LoadInterleaved2(d, sums + 2 * i, g, l);
    hn::LoadInterleaved2(d, bias + 2 * i, gate_bias, up_bias);
    g = hn::Add(g, gate_bias);
    l = hn::Add(l, up_bias);
    g = hn::IfThenElse(hn::Gt(g, limit), limit, g);
    l = hn::IfThenElse(hn::Gt(l, limit), limit, l);
    l = hn::IfThenElse(hn::Lt(l, low), low, l);
    auto argument = hn::Mul(g, hn::Set(d, -limits.alpha));
    argument = hn::IfThenElse(hn::Gt(argument, most), most, argument);
    const auto gated = hn::Div(g, hn::Add(one, hn::Exp(d, argument)));
    hn::Store(hn::Mul(hn::Add(l, one), gated), d, out + i);
  }
}

}  // namespace nibble::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::kernels {

HWY_EXPORT(run_tile);
HWY_EXPORT(run_activate);

void split_tile(const ExpertTile& tile) { HWY_DYNAMIC_DISPATCH(run_tile)(tile); }

void split_row(const void* x, DType dtype, std::int32_t cols, float* out) {
  for (std::int64_t block = 0; block < cols; block += 32) {
    for (std::int64_t pair = 0; pair < 16; ++pair) {
      out[block + pair] = load_element(x, dtype, block + 2 * pair);
      out[block + pair + 16] = load_element(x, dtype, block + 2 * pair + 1);
    }
  }
}

void activate(const float* sums, const float* bias, std::int32_t count, ActivationLimits limits,
              float* out) {
  HWY_DYNAMIC_DISPATCH(run_activate)(sums, bias, count, limits, out);
}

}  // namespace nibble::kernels
#endif  // HWY_ONCE
