// Attention of one token. A unit is a kv head and a run of its keys, in tiles of 16; a block takes
// one unit, its first nine warps the unit's tiles in turn.
//
// Folded in order: tiles of a warp, warps, units: by position alone.
#pragma once

#include "kernels/decode/device/decode_keys.cuh"

namespace nibble::kernels::device {

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
