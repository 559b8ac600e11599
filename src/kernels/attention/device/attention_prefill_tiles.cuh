// How the prompts of a call are cut into tiles of queries, and what a tile reads.
//
// A tile is some consecutive tokens of a sequence times the heads of a group. Tiles are numbered
// sequence by sequence, in a sequence from its end, since the last tokens see the most keys, and
// kv heads fastest, so that neighbours cost the same.
#pragma once

#include <cstdint>

#include "kernels/attention/device/attention_params.cuh"

namespace nibble::kernels::device {

inline constexpr int kMostPrefillSequences = 512;  // of a launch

struct PrefillTile {
  SequenceRange sequence;
  int kv_head;
  int token;  // first, of the sequence
  int begin;  // keys that some query sees: [begin, end)
  int end;
  int first_step;  // of kKeys keys each, counted from position 0 on: what a row's sums
  int num_steps;   // pass through does not depend on how a prompt was cut
};

// Tiles before each sequence.
struct PrefillCounts {
  int before[kMostPrefillSequences + 1];
};

// By one warp. Sequences of one row have no tiles.
__device__ __forceinline__ void count_tiles(const AttentionParams& params, int num_sequences,
                                            int tokens_per_tile, PrefillCounts& counts) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int before = 0;
  for (int base = 0; base < num_sequences; base += 32) {
    const int rows = base + lane < num_sequences ? params.sequences[base + lane].num_rows : 0;
    const int mine =
        rows > 1 ? (rows + tokens_per_tile - 1) / tokens_per_tile * params.num_kv_heads : 0;
    int upto = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, upto, step);
      upto += lane >= step ? other : 0;
    }
    if (base + lane < num_sequences) {
      counts.before[base + lane] = before + upto - mine;
    }
    before += __shfl_sync(0xFFFFFFFFU, upto, 31);
  }
  if (lane == 0) {
    counts.before[num_sequences] = before;
  }
}

template <typename Config>
struct PrefillTiles {
  const AttentionParams& params;
  const PrefillCounts& counts;
  int num_sequences;
  int tokens_per_tile;

  __device__ __forceinline__ int count() const { return counts.before[num_sequences]; }

  // The tile of this block in round `round`. Every second round runs backwards, so that no block
  // has the longer tile each time.
  __device__ __forceinline__ int index(int round) const {
    const int blocks = static_cast<int>(gridDim.x);
    const int block = static_cast<int>(blockIdx.x);
    return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
  }

  __device__ __forceinline__ PrefillTile at(int index) const {
    int low = 0;
    int high = num_sequences - 1;  // the last sequence with before <= index
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (counts.before[middle] <= index) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const int behind = counts.before[low + 1] - 1 - index;  // tiles of the sequence
    PrefillTile tile;
    tile.sequence = params.sequences[low];
    tile.kv_head = behind % params.num_kv_heads;
    tile.token = behind / params.num_kv_heads * tokens_per_tile;
    const int last = min(tile.token + tokens_per_tile, tile.sequence.num_rows) - 1;
    tile.begin = first_key(params, tile.sequence.first_position + tile.token);
    tile.end = tile.sequence.first_position + last + 1;
    tile.first_step = tile.begin / Config::kKeys;
    tile.num_steps = (tile.end - 1) / Config::kKeys - tile.first_step + 1;
    return tile;
  }
};

}  // namespace nibble::kernels::device
