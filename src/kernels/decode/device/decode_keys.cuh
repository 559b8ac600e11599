// Tiles of a block's keys: read, scored, and their values summed. Keys stand as the rows of the
// matrix instruction and the heads of the group as its eight columns; loads are 16 bytes in an
// order of channels that both operands share (as in attention_tile.cuh), keys and values of the
// first tile asked for before the query is known.
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

}  // namespace nibble::kernels::device
