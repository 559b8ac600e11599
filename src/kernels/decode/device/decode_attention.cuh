// Attention of one token. A unit is a kv head and a run of its keys, in tiles of 16; a block takes
// one unit, its first nine warps the unit's tiles in turn. Keys stand as the rows of the matrix
// instruction and the heads of the group as its eight columns; loads are 16 bytes in an order of
// channels that both operands share (as in attention_tile.cuh), keys and values of the first tile
// asked for before the query is known.
//
// Folded in order: tiles of a warp, warps, units: by position alone.
#pragma once

#include "kernels/common/element.cuh"
#include "kernels/common/ptx_load.cuh"
#include "kernels/common/ptx_mma.cuh"
#include "kernels/decode/device/decode_params.cuh"

namespace nibble::kernels::device {

inline constexpr float kDecodeLog2E = 1.4426950408889634F;
inline constexpr float kDecodeNoScore = -1e30F;  // of a key that is not seen

// Which keys a block attends to.
struct KeyUnit {
  int kv_head = 0;
  int split = 0;
  int splits = 1;     // of each kv head
  int first_key = 0;  // that the token sees
  int position = 0;
  DecodeRange tiles;  // empty: the block has no unit

  __device__ __forceinline__ KeyUnit(const DecodeShared& shared, int window, int at)
      : kv_head(shared.kv_head), split(shared.split), position(at) {
    first_key = window == 0 ? 0 : max(0, position - window + 1);
    const int first_tile = first_key / DecodeConfig::kTileKeys;
    const int count = position / DecodeConfig::kTileKeys - first_tile + 1;
    splits =
        min((count + DecodeConfig::kKeyWarps - 1) / DecodeConfig::kKeyWarps, shared.max_splits);
    if (split < splits) {
      const DecodeRange part = decode_share(count, split, splits);
      tiles = {first_tile + part.begin, first_tile + part.end};
    }
  }
  __device__ __forceinline__ bool is_empty() const { return tiles.size() == 0; }
  __device__ __forceinline__ bool has_new_key() const { return split == splits - 1; }
};

// A lane of the matrix instruction's fragments.
struct FragmentLane {
  int g;
  int t;
  __device__ __forceinline__ explicit FragmentLane(int thread)
      : g(thread % 32 / 4), t(thread % 4) {}
  // Of the first operand's rows, and of the pairs along its inner axis.
  __device__ __forceinline__ int key_row(int i) const { return g + 8 * i; }
  __device__ __forceinline__ int value_row(int i) const { return 2 * t + i % 2 + i / 2 * 8; }
};

// A lane's part of 16 keys and their values: keys g and g + 8, both halves of the channels; values
// of keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9, channels 8 g .. 8 g + 7.
struct KeyTile {
  uint4 k[2][2];
  uint4 v[4];

  // The token's own key comes later, from shared memory.
  __device__ __forceinline__ void load(const DecodeSizes& sizes, const DecodeLayer& layer,
                                       const DecodeShared& shared, const KeyUnit& unit,
                                       FragmentLane lane, int tile) {
    const int first = tile * DecodeConfig::kTileKeys;
    const auto& cache = shared.caches[layer.cache];
    const std::int64_t page = cache.pages[(first >> shared.page_shift) - cache.first_page];
    const std::int64_t at = ((page * sizes.num_kv_heads + unit.kv_head) * sizes.page_size +
                             (first & (sizes.page_size - 1))) *
                            8;  // pieces of 16 bytes
    const uint4* keys = reinterpret_cast<const uint4*>(layer.k_cache) + at;
    const uint4* values = reinterpret_cast<const uint4*>(layer.v_cache) + at;
    const auto is_seen = [&](int row) {
      return first + row >= unit.first_key && first + row < unit.position;
    };
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        k[i][half] = is_seen(lane.key_row(i)) ? keys[lane.key_row(i) * 8 + 4 * half + lane.t]
                                              : make_uint4(0, 0, 0, 0);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i] = is_seen(lane.value_row(i)) ? values[lane.value_row(i) * 8 + lane.g]
                                        : make_uint4(0, 0, 0, 0);
    }
  }

  __device__ __forceinline__ void put_new(const DecodeAttention& shared, FragmentLane lane,
                                          int row_of_tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (lane.key_row(i) == row_of_tile) {
        k[i][0] = shared.k[lane.t];
        k[i][1] = shared.k[4 + lane.t];
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (lane.value_row(i) == row_of_tile) {
        v[i] = shared.v[lane.g];
      }
    }
  }
};

// Of queries 2 t and 2 t + 1 of the group, over a warp's keys.
struct QueryState {
  float largest[2] = {kDecodeNoScore, kDecodeNoScore};
  float total[2] = {};
  float sums[4][4] = {};  // [j]: channel 8 g + j of both queries, channel 8 g + j + 4 of both
};

// Scores of 16 keys, in units of log 2: key g of queries 2 t, 2 t + 1, then key g + 8.
__device__ __forceinline__ void score_keys(const uint4 (&k)[2][2], const uint4 (&q)[2],
                                           float (&scores)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t low[4] = {k[0][half].x, k[1][half].x, k[0][half].y, k[1][half].y};
    const std::uint32_t high[4] = {k[0][half].z, k[1][half].z, k[0][half].w, k[1][half].w};
    mma_m16n8k16_bf16(scores, low, q[half].x, q[half].y);
    mma_m16n8k16_bf16(scores, high, q[half].z, q[half].w);
  }
}

__device__ __forceinline__ std::uint32_t word_of(const uint4& piece, int i) {
  return i == 0 ? piece.x : i == 1 ? piece.y : i == 2 ? piece.z : piece.w;
}

// Adds 16 keys' values times their weights (keys 2 t, 2 t + 1, then + 8, of query g).
__device__ __forceinline__ void add_values(const uint4 (&v)[4], std::uint32_t low,
                                           std::uint32_t high, QueryState& state) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::uint32_t select = j % 2 == 0 ? 0x5410U : 0x7632U;
    const std::uint32_t fragment[4] = {
        __byte_perm(word_of(v[0], j / 2), word_of(v[1], j / 2), select),
        __byte_perm(word_of(v[0], j / 2 + 2), word_of(v[1], j / 2 + 2), select),
        __byte_perm(word_of(v[2], j / 2), word_of(v[3], j / 2), select),
        __byte_perm(word_of(v[2], j / 2 + 2), word_of(v[3], j / 2 + 2), select)};
    mma_m16n8k16_bf16(state.sums[j], fragment, low, high);
  }
}

__device__ __forceinline__ float largest_of_column(float value) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, step));
  }
  return value;
}

// Weights are rounded to bf16 for the product, and the rounded ones are summed.
__device__ __forceinline__ void attend_tile(const KeyTile& tile, const KeyUnit& unit,
                                            FragmentLane lane, int first_key, float factor,
                                            const uint4 (&q)[2], QueryState& state) {
  float scores[4] = {};
  score_keys(tile.k, q, scores);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = first_key + lane.key_row(i / 2);
    const bool is_seen = key >= unit.first_key && key <= unit.position;
    scores[i] = is_seen ? scores[i] * factor : kDecodeNoScore;
  }
#pragma unroll
  for (int query = 0; query < 2; ++query) {
    const float most = largest_of_column(fmaxf(scores[query], scores[query + 2]));
    const float largest = fmaxf(state.largest[query], most);
    const float correction = exp2f(state.largest[query] - largest);
    state.largest[query] = largest;
    state.total[query] *= correction;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      state.sums[j][query] *= correction;
      state.sums[j][query + 2] *= correction;
    }
#pragma unroll
    for (int i = query; i < 4; i += 2) {
      scores[i] = scores[i] == kDecodeNoScore ? 0.0F : exp2f(scores[i] - largest);
    }
  }
  const std::uint32_t low = cvt_bf16x2(scores[0], scores[1]);
  const std::uint32_t high = cvt_bf16x2(scores[2], scores[3]);
  state.total[0] += low_bf16(low) + low_bf16(high);
  state.total[1] += high_bf16(low) + high_bf16(high);
  add_values(tile.v, movmatrix_trans(low), movmatrix_trans(high), state);
}

__device__ __forceinline__ void share_state(QueryState& state, FragmentLane lane, int warp,
                                            DecodeAttention& shared) {
#pragma unroll
  for (int query = 0; query < 2; ++query) {
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      state.total[query] += __shfl_xor_sync(0xFFFFFFFFU, state.total[query], step);
    }
    float* to = shared.state[warp][2 * lane.t + query];
    if (lane.g == 0) {
      to[0] = state.largest[query];
      to[1] = state.total[query];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      to[2 + 8 * lane.g + j] = state.sums[j][query];
      to[2 + 8 * lane.g + j + 4] = state.sums[j][query + 2];
    }
  }
}

// Rotates this unit's queries, and its new key where the unit has it, into shared memory; stores
// key and value into the cache.
__device__ __forceinline__ void rotate(int index, const KeyUnit& unit, DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  constexpr int kHalf = DecodeConfig::kHeadDim / 2;
  const int thread = thread_index();
  const int head = thread / kHalf;  // of the group, then k, then v
  const int group = shared.group;
  const int j = thread % kHalf;
  if (head >= (unit.has_new_key() ? group + 2 : group)) {
    return;
  }
  const int first = head < group ? (unit.kv_head * group + head) * DecodeConfig::kHeadDim
                                 : sizes.q_width() + (head - group) * sizes.kv_width() +
                                       unit.kv_head * DecodeConfig::kHeadDim;
  const std::uint32_t* from = shared.words(index, shared.exchange.qkv) + first + j;
  std::uint32_t words[2];
  bring(
      words, shared, [](int /*i*/) { return true; }, [&](int i) { return from + i * kHalf; });
  float low = __uint_as_float(words[0]);
  float high = __uint_as_float(words[1]);
  if (head <= group) {
    const float turned = low * shared.cosine[j] - high * shared.sine[j];
    high = high * shared.cosine[j] + low * shared.sine[j];
    low = turned;
  }
  uint4* to = head < group ? shared.attention.q[head]
                           : (head == group ? shared.attention.k : shared.attention.v);
  auto* values = reinterpret_cast<__nv_bfloat16*>(to);
  values[j] = __float2bfloat16_rn(low);
  values[j + kHalf] = __float2bfloat16_rn(high);
  const DecodeLayer& layer = shared.layer(index);
  const std::int64_t slot = shared.caches[layer.cache].slot;
  if (head >= group && slot >= 0) {
    const std::int64_t at =
        (((slot >> shared.page_shift) * sizes.num_kv_heads + unit.kv_head) * sizes.page_size +
         (slot & (sizes.page_size - 1))) *
            DecodeConfig::kHeadDim +
        j;
    auto* cache =
        reinterpret_cast<__nv_bfloat16*>(head == group ? layer.k_cache : layer.v_cache) + at;
    cache[0] = values[j];
    cache[kHalf] = values[j + kHalf];
  }
}

// One query's result over some keys; a thread holds one channel. Folding nothing changes no bit.
struct FoldedQuery {
  float largest = kDecodeNoScore;
  float total = 0.0F;
  float sum = 0.0F;

  __device__ __forceinline__ void add(float next_largest, float next_total, float next_sum) {
    const float most = fmaxf(largest, next_largest);
    const float mine = exp2f(largest - most);
    const float other = exp2f(next_largest - most);
    largest = most;
    total = total * mine + next_total * other;
    sum = sum * mine + next_sum * other;
  }
  // Once the sink has its share.
  __device__ __forceinline__ float result(float sink) const {
    const float scaled = sink * kDecodeLog2E;
    const float most = fmaxf(largest, scaled);
    const float correction = exp2f(largest - most);
    return sum * (correction / (total * correction + exp2f(scaled - most)));
  }
};

// Folds the warps of this block and tells the result, or the state for others to fold. A warp has
// channels of one query.
__device__ __forceinline__ void fold_warps(int index, const KeyUnit& unit,
                                           const DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  for (int item = thread_index(); item < shared.group * DecodeConfig::kHeadDim;
       item += DecodeConfig::kMultiplyThreads) {
    const int query = item / DecodeConfig::kHeadDim;
    const int channel = item % DecodeConfig::kHeadDim;
    FoldedQuery folded;
#pragma unroll
    for (int warp = 0; warp < DecodeConfig::kKeyWarps; ++warp) {
      const float* from = shared.attention.state[warp][query];
      folded.add(from[0], from[1], from[2 + channel]);
    }
    if (unit.splits == 1) {
      const int head = unit.kv_head * shared.group + query;
      const float value = folded.result(shared.attention.sinks[query]);
      const float next = __shfl_down_sync(0xFFFFFFFFU, value, 1);
      if (channel % 2 == 0) {
        tell(shared.words(index, shared.exchange.attention) +
                 (head * DecodeConfig::kHeadDim + channel) / 2,
             cvt_bf16x2(value, next));
      }
      continue;
    }
    std::uint32_t* to =
        shared.words(index, shared.exchange.state) +
        ((std::int64_t{unit.kv_head} * shared.max_splits + unit.split) * shared.group + query) *
            kDecodeStateFloats;
    tell(to + 2 + channel, folded.sum);
    if (channel < 2) {
      tell(to + channel, channel == 0 ? folded.largest : folded.total);
    }
  }
}

// Folds the units of one head, by one warp; a lane holds two channels.
__device__ __forceinline__ void fold_units(int index, int head, int splits, DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  const int lane = lane_index();
  const float sink = shared.layer(index).sinks[head];
  const std::int64_t step = std::int64_t{shared.group} * kDecodeStateFloats;
  const std::uint32_t* from = shared.words(index, shared.exchange.state) +
                              std::int64_t{head / shared.group} * shared.max_splits * step +
                              head % shared.group * kDecodeStateFloats;
  FoldedQuery low;
  FoldedQuery high;
  constexpr int kAtOnce = 8;
  for (int first = 0; first < splits; first += kAtOnce) {
    // Of each unit the maximum and total, then the sums.
    uint2 words[2 * kAtOnce];
    bring(
        words, shared, [&](int i) { return first + i / 2 < splits; },
        [&](int i) { return from + (first + i / 2) * step + (i % 2 == 0 ? 0 : 2 + 2 * lane); });
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < splits) {
        const float largest = __uint_as_float(words[2 * i].x);
        const float total = __uint_as_float(words[2 * i].y);
        low.add(largest, total, __uint_as_float(words[2 * i + 1].x));
        high.add(largest, total, __uint_as_float(words[2 * i + 1].y));
      }
    }
  }
  tell(shared.words(index, shared.exchange.attention) + head * DecodeConfig::kHeadDim / 2 + lane,
       cvt_bf16x2(low.result(sink), high.result(sink)));
}

// The next layer's keys and values of this block into L2, by the warps that have no tile: asked for
// when they are used, they would come behind all the weights that are asked for by then.
__device__ __forceinline__ void prefetch_keys(int index, int position, DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  constexpr int kFirst = 32 * DecodeConfig::kKeyWarps;
  constexpr int kMostTiles = 4 * DecodeConfig::kKeyWarps;
  const int thread = thread_index() - kFirst;
  if (index >= sizes.num_layers || thread < 0) {
    return;
  }
  const DecodeLayer& layer = shared.layer(index);
  const KeyUnit unit(shared, layer.window, position);
  const auto& cache = shared.caches[layer.cache];
  const int keys = min(unit.tiles.size(), kMostTiles) * DecodeConfig::kTileKeys;
  for (int i = thread; i < keys; i += DecodeConfig::kMultiplyThreads - kFirst) {
    const int key = unit.tiles.begin * DecodeConfig::kTileKeys + i;
    if (key >= unit.first_key && key < position) {
      const std::int64_t page = cache.pages[(key >> shared.page_shift) - cache.first_page];
      const std::int64_t at = ((page * sizes.num_kv_heads + unit.kv_head) * sizes.page_size +
                               (key & (sizes.page_size - 1))) *
                              DecodeConfig::kHeadDim;
      prefetch_l2(layer.k_cache + at);
      prefetch_l2(layer.v_cache + at);
    }
  }
}

__device__ __forceinline__ void attend_unit(int index, const KeyUnit& unit, DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  const DecodeLayer& layer = shared.layer(index);
  const int thread = thread_index();
  const int warp = thread / 32;
  const FragmentLane lane(thread);
  // By the last warp, which has neither keys nor queries to load.
  const int last = thread - (DecodeConfig::kMultiplyThreads - 32);
  if (last >= 0 && last < shared.group) {
    shared.attention.sinks[last] = layer.sinks[unit.kv_head * shared.group + last];
  }
  KeyTile tile = {};
  int at = unit.tiles.begin + warp;
  const bool has_tile = warp < DecodeConfig::kKeyWarps && at < unit.tiles.end;
  if (has_tile) {
    tile.load(sizes, layer, shared, unit, lane, at);
  }
  rotate(index, unit, shared);
  sync_multiplying();
  if (warp < DecodeConfig::kKeyWarps) {
    QueryState state;
    uint4 q[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
    if (lane.g < shared.group) {
      q[0] = shared.attention.q[lane.g][lane.t];
      q[1] = shared.attention.q[lane.g][4 + lane.t];
    }
    for (; at < unit.tiles.end; at += DecodeConfig::kKeyWarps) {
      const int first = at * DecodeConfig::kTileKeys;
      if (at != unit.tiles.begin + warp) {
        tile.load(sizes, layer, shared, unit, lane, at);
      }
      tile.put_new(shared.attention, lane, unit.position - first);
      attend_tile(tile, unit, lane, first, shared.args.scale * kDecodeLog2E, q, state);
    }
    share_state(state, lane, warp, shared.attention);
  }
  sync_multiplying();
  fold_warps(index, unit, shared);
}

// From q, k, v of all blocks to the result that all blocks wait for; how many will have told it.
// Uses the memory of products.
__device__ __forceinline__ int attend(int index, int position, DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  const KeyUnit unit(shared, shared.layer(index).window, position);
  prefetch_keys(index + 1, position, shared);
  if (!unit.is_empty()) {
    attend_unit(index, unit, shared);
  }
  if (unit.splits == 1) {
    sync_multiplying();
    if (!unit.is_empty() && thread_index() == 0) {
      count_told(shared, index, DecodeCount::kAttention);
    }
    return sizes.num_kv_heads;
  }
  // Heads from the last block on: the first ones have units.
  const int head =
      sizes.num_blocks - 1 - static_cast<int>(blockIdx.x) + thread_index() / 32 * sizes.num_blocks;
  if (head < sizes.num_heads) {
    fold_units(index, head, unit.splits, shared);
    __syncwarp();
    if (thread_index() % 32 == 0) {
      count_told(shared, index, DecodeCount::kAttention);
    }
  }
  sync_multiplying();
  return sizes.num_heads;
}

}  // namespace nibble::kernels::device
