#include "kernels/attention/attention_block.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/cache_rows.h"
#include "kernels/common/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_block.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/common/vector_element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::kernels::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;  // divides the padded number of queries
using IntTag = hn::RebindToSigned<Tag>;
using Vector = hn::Vec<Tag>;

// Finite, so that maxima subtract without a NaN where a query sees no key yet.
constexpr float kNoKey = -std::numeric_limits<float>::max();

constexpr std::int32_t lanes() { return static_cast<std::int32_t>(hn::MaxLanes(Tag())); }

// Queries rounded up to whole vectors of any target: the row length of every buffer.
std::int32_t padded(const QueryBlock& block) { return (block.num_queries + 15) / 16 * 16; }

// A NaN stays one: a broken activation must not look like a weight of zero.
HWY_INLINE Vector exp_of(Vector x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(Tag(), x)); }

struct Buffers {
  Buffers(float* scratch, std::int32_t head_dim)
      : queries(scratch),
        keys(queries + std::int64_t{head_dim} * kBlockQueries),
        values(keys + std::int64_t{head_dim} * kTileKeys),
        weights(values + std::int64_t{head_dim} * kTileKeys),
        first(reinterpret_cast<std::int32_t*>(weights + std::int64_t{kTileKeys} * kBlockQueries)),
        last(first + kBlockQueries) {}

  float* queries;       // [head_dim, padded]
  float* keys;          // [kTileKeys, head_dim]
  float* values;        // likewise
  float* weights;       // [kTileKeys, padded]: scores, then exponentials
  std::int32_t* first;  // [padded]: keys that the lane sees, both included
  std::int32_t* last;
};

// Part of a tile: keys [begin, end) counted from the tile's first.
struct TileSpan {
  std::int32_t start = 0;  // position of the tile's first key
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

void load_queries(const QueryBlock& block, const Buffers& buffers) {
  const AttentionArgs& args = *block.args;
  const std::int32_t width = padded(block);
  std::fill_n(buffers.queries, std::int64_t{width} * args.head_dim, 0.0F);
  std::fill_n(buffers.first, width, 1);  // padding sees nothing
  std::fill_n(buffers.last, width, 0);
  const std::int32_t group = block.group();
  for (std::int32_t query = 0; query < block.num_queries; ++query) {
    const std::int32_t flat = block.first_query + query;
    const std::int64_t row = block.sequence->first_row + flat / group;
    const std::int64_t head = block.kv_head * group + flat % group;
    const std::int64_t at = (row * args.num_heads + head) * args.head_dim;
    for (std::int32_t j = 0; j < args.head_dim; ++j) {
      buffers.queries[std::int64_t{j} * width + query] = load_element(args.q, args.q_dtype, at + j);
    }
    buffers.first[query] = block.first_key(query);
    buffers.last[query] = block.position(query);
  }
}

// One layer's keys or values.
struct Cache {
  const void* elements = nullptr;
  const std::uint8_t* scales = nullptr;  // of e4m3 alone
};

template <class T>
HWY_INLINE void widen(const Cache& cache, std::int64_t row, std::int32_t elems, float* to) {
  const hn::CappedTag<float, 8> d;
  const T* from = static_cast<const T*>(cache.elements) + row * elems;
  for (std::int32_t j = 0; j < elems; j += static_cast<std::int32_t>(hn::Lanes(d))) {
    hn::StoreU(load_f32(d, from + j), d, to + j);
  }
}

struct E4m3 {};

// A code's exponent and mantissa, moved to those of float32, are its value times 2^-120; both
// products are exact. NaN is the scale's, never a code's.
template <>
HWY_INLINE void widen<E4m3>(const Cache& cache, std::int64_t row, std::int32_t elems, float* to) {
  const hn::CappedTag<float, 8> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto* from = static_cast<const std::uint8_t*>(cache.elements) + row * elems;
  const auto scale = hn::Set(d, formats::ue8m0_to_f32(cache.scales[row]));
  for (std::int32_t j = 0; j < elems; j += static_cast<std::int32_t>(hn::Lanes(d))) {
    const auto code = hn::PromoteTo(du, hn::LoadU(d8, from + j));
    const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(du, 0x80U)));
    const auto magnitude = hn::ShiftLeft<20>(hn::And(code, hn::Set(du, 0x7FU)));
    const auto value = hn::Mul(hn::BitCast(d, hn::Or(sign, magnitude)), hn::Set(d, 0x1p120F));
    hn::StoreU(hn::Mul(value, scale), d, to + j);
  }
}

// Reads the keys of the span only: others may be stale or have no page.
template <class T>
void load_tile(const QueryBlock& block, TileSpan span, const Buffers& buffers) {
  const AttentionArgs& args = *block.args;
  const AttentionSequence& sequence = *block.sequence;
  for (std::int32_t i = span.begin; i < span.end; ++i) {
    const std::int32_t position = span.start + i;
    const std::int64_t page = sequence.pages[position / args.page_size - sequence.first_page];
    const std::int64_t row = cache_row(page, args.num_kv_heads, block.kv_head, args.page_size,
                                       position % args.page_size);
    const std::int64_t to = std::int64_t{i} * args.head_dim;
    widen<T>({args.k_cache, args.k_scales}, row, args.head_dim, buffers.keys + to);
    widen<T>({args.v_cache, args.v_scales}, row, args.head_dim, buffers.values + to);
  }
}

// What the inner loops read and write. Rows of `width` floats hold the queries.
struct Product {
  const float* left = nullptr;   // broadcast elements
  const float* right = nullptr;  // [depth, width]
  float* out = nullptr;          // [count, width]
  std::int64_t left_step = 0;    // from one depth to the next
  std::int64_t left_stride = 0;  // from one output to the next
  std::int32_t depth = 0;
  std::int32_t width = 0;
};

// out[i, :] = out[i, :] + sum over depth, in order, of left[i, depth] * right[depth, :], for kCount
// outputs and kVectors vectors of queries. Sums stay in registers: at most 8, what AVX2 can hold.
template <int kCount, int kVectors>
HWY_INLINE void multiply(const Product& product, std::int64_t column) {
  const Tag d;
  Vector sums[kCount][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = hn::Load(
          d, product.out + std::int64_t{i} * product.width + column + std::int64_t{v} * lanes());
    }
  }
  const float* left = product.left;
  const float* right = product.right + column;
  for (std::int32_t step = 0; step < product.depth; ++step) {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      const Vector factor = hn::Set(d, left[i * product.left_stride]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        sums[i][v] = hn::MulAdd(factor, hn::Load(d, right + std::int64_t{v} * lanes()), sums[i][v]);
      }
    }
    left += product.left_step;
    right += product.width;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[i][v], d,
                product.out + std::int64_t{i} * product.width + column + std::int64_t{v} * lanes());
    }
  }
}

template <int kCount, int kVectors>
HWY_INLINE void multiply_rows(Product product, std::int64_t column, std::int32_t count) {
  for (std::int32_t i = 0; i + kCount <= count; i += kCount) {
    multiply<kCount, kVectors>(product, column);
    product.left += kCount * product.left_stride;
    product.out += std::int64_t{kCount} * product.width;
  }
  for (std::int32_t i = 0; i < count % kCount; ++i) {
    multiply<1, kVectors>(product, column);
    product.left += product.left_stride;
    product.out += product.width;
  }
}

void multiply_all(const Product& product, std::int32_t count) {
  std::int32_t column = 0;
  for (; column + 2 * lanes() <= product.width; column += 2 * lanes()) {
    multiply_rows<4, 2>(product, column, count);
  }
  for (; column < product.width; column += lanes()) {
    multiply_rows<8, 1>(product, column, count);
  }
}

void score_tile(const QueryBlock& block, TileSpan span, const Buffers& buffers) {
  const std::int32_t head_dim = block.args->head_dim;
  const std::int32_t width = padded(block);
  float* out = buffers.weights + std::int64_t{span.begin} * width;
  std::fill_n(out, std::int64_t{span.end - span.begin} * width, 0.0F);
  multiply_all({.left = buffers.keys + std::int64_t{span.begin} * head_dim,
                .right = buffers.queries,
                .out = out,
                .left_step = 1,
                .left_stride = head_dim,
                .depth = head_dim,
                .width = width},
               span.end - span.begin);
}

// Turns scores into weights, and moves the partial result to the new maximum.
void weigh_tile(const QueryBlock& block, TileSpan span, const Buffers& buffers, float* partial) {
  const Tag d;
  const IntTag di;
  const std::int32_t width = padded(block);
  const Vector scale = hn::Set(d, block.args->scale);
  const Vector hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::int32_t column = 0; column < width; column += lanes()) {
    const auto first = hn::Load(di, buffers.first + column);
    const auto last = hn::Load(di, buffers.last + column);
    const Vector before = hn::Load(d, partial + column);
    Vector largest = before;
    for (std::int32_t i = span.begin; i < span.end; ++i) {
      const auto key = hn::Set(di, span.start + i);
      const auto is_hidden = hn::Or(hn::Lt(key, first), hn::Gt(key, last));
      float* at = buffers.weights + std::int64_t{i} * width + column;
      const Vector score =
          hn::IfThenElse(hn::RebindMask(d, is_hidden), hidden, hn::Mul(hn::Load(d, at), scale));
      hn::Store(score, d, at);
      largest = hn::Max(largest, score);
    }
    Vector sum = hn::Zero(d);
    for (std::int32_t i = span.begin; i < span.end; ++i) {
      float* at = buffers.weights + std::int64_t{i} * width + column;
      const Vector weight = exp_of(hn::Sub(hn::Load(d, at), largest));
      hn::Store(weight, d, at);
      sum = hn::Add(sum, weight);
    }
    const Vector decay = exp_of(hn::Sub(before, largest));
    hn::Store(largest, d, partial + column);
    hn::Store(hn::MulAdd(hn::Load(d, partial + width + column), decay, sum), d,
              partial + width + column);
    for (std::int32_t j = 0; j < block.args->head_dim; ++j) {
      float* out = partial + (std::int64_t{2} + j) * width + column;
      hn::Store(hn::Mul(hn::Load(d, out), decay), d, out);
    }
  }
}

void add_values(const QueryBlock& block, TileSpan span, const Buffers& buffers, float* partial) {
  const std::int32_t head_dim = block.args->head_dim;
  const std::int32_t width = padded(block);
  multiply_all({.left = buffers.values + std::int64_t{span.begin} * head_dim,
                .right = buffers.weights + std::int64_t{span.begin} * width,
                .out = partial + std::int64_t{2} * width,
                .left_step = head_dim,
                .left_stride = 1,
                .depth = span.end - span.begin,
                .width = width},
               head_dim);
}

void attend_chunk(const QueryBlock& block, std::int32_t chunk, float* scratch, float* partial) {
  const AttentionArgs& args = *block.args;
  const Buffers buffers(scratch, args.head_dim);
  const std::int32_t width = padded(block);
  load_queries(block, buffers);
  std::fill_n(partial, width, kNoKey);
  std::fill_n(partial + width, (std::int64_t{1} + args.head_dim) * width, 0.0F);
  const std::int32_t begin = std::max(block.first_key(0), chunk * kChunkKeys);
  const std::int32_t end = std::min(block.last_position() + 1, (chunk + 1) * kChunkKeys);
  for (std::int32_t start = begin / kTileKeys * kTileKeys; start < end; start += kTileKeys) {
    const TileSpan span = {start, std::max(begin - start, 0), std::min(end - start, kTileKeys)};
    if (args.kv_dtype == DType::kF32) {
      load_tile<float>(block, span, buffers);
    } else if (args.kv_dtype == DType::kE4M3) {
      load_tile<E4m3>(block, span, buffers);
    } else {
      load_tile<formats::Bf16>(block, span, buffers);
    }
    score_tile(block, span, buffers);
    weigh_tile(block, span, buffers, partial);
    add_values(block, span, buffers, partial);
  }
}

void merge(const QueryBlock& block, const float* partial, float* total) {
  const Tag d;
  const std::int32_t width = padded(block);
  for (std::int32_t column = 0; column < width; column += lanes()) {
    const Vector old_max = hn::Load(d, total + column);
    const Vector new_max = hn::Load(d, partial + column);
    const Vector largest = hn::Max(old_max, new_max);
    const Vector old_decay = exp_of(hn::Sub(old_max, largest));
    const Vector new_decay = exp_of(hn::Sub(new_max, largest));
    hn::Store(largest, d, total + column);
    for (std::int32_t row = 1; row < 2 + block.args->head_dim; ++row) {
      const std::int64_t at = std::int64_t{row} * width + column;
      const Vector kept = hn::Mul(hn::Load(d, total + at), old_decay);
      hn::Store(hn::MulAdd(hn::Load(d, partial + at), new_decay, kept), d, total + at);
    }
  }
}

// The factor of every lane: exp(max - m) / denominator, with the sink in both.
void sink_factors(const QueryBlock& block, float* total) {
  const float* sinks = block.args->sinks;
  const std::int32_t width = padded(block);
  for (std::int32_t query = 0; query < block.num_queries; ++query) {
    const std::int32_t head_in_group = (block.first_query + query) % block.group();
    float scale = 1.0F;
    float sum = total[width + query];
    if (sinks != nullptr) {
      const float sink = sinks[block.kv_head * block.group() + head_in_group];
      const float largest = std::max(total[query], sink);
      scale = std::exp(total[query] - largest);
      sum = sum * scale + std::exp(sink - largest);
    }
    total[query] = scale / sum;
  }
}

void finish(const QueryBlock& block, float* total) {
  const AttentionArgs& args = *block.args;
  const std::int32_t width = padded(block);
  const std::int32_t group = block.group();
  sink_factors(block, total);
  for (std::int32_t query = 0; query < block.num_queries; ++query) {
    const std::int32_t flat = block.first_query + query;
    const std::int64_t row = block.sequence->first_row + flat / group;
    const std::int64_t head = block.kv_head * group + flat % group;
    const std::int64_t at = (row * args.num_heads + head) * args.head_dim;
    for (std::int32_t j = 0; j < args.head_dim; ++j) {
      // The zero makes -0 into +0: hidden keys of a shared block add +0 to an underflowed -0.
      const float value = total[(std::int64_t{2} + j) * width + query] * total[query] + 0.0F;
      store_element(args.out, args.q_dtype, at + j, value);
    }
  }
}

// A function, because the dispatch table holds functions.
const AttentionBlockOps* attention_ops() {
  static constexpr AttentionBlockOps kOps = {&attend_chunk, &merge, &finish};
  return &kOps;
}

}  // namespace
}  // namespace nibble::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::kernels {

HWY_EXPORT(attention_ops);

const AttentionBlockOps& attention_block_ops() { return *HWY_DYNAMIC_DISPATCH(attention_ops)(); }

}  // namespace nibble::kernels
#endif  // HWY_ONCE
