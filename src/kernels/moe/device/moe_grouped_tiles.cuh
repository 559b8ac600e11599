// Tiles of moe_grouped: how rows of experts and weight bands are cut up, and the ring of x.
#pragma once

#include <cstdint>

#include "kernels/moe/device/expert_product.cuh"

namespace nibble::kernels::device {

template <int kTileRowsOf, int kMultiplyGroupsOf, int kAheadOf, int kGroupWordsOf, int kBuffersOf,
          int kStageChunksOf>
struct GroupedConfig {
  static constexpr int kTileRows = kTileRowsOf;              // most rows of x in a tile
  static constexpr int kMultiplyGroups = kMultiplyGroupsOf;  // warpgroups of 64 weight rows
  static constexpr int kAhead = kAheadOf;  // chunks of weights ahead: those of a round
  static constexpr int kTileBands = kMultiplyGroups * 4;
  static constexpr int kGatherWarps = 4;
  static constexpr int kMultiplyThreads = kMultiplyGroups * 128;
  static constexpr int kThreads = kMultiplyThreads + kGatherWarps * 32;
  // Chunks of x that are asked for, announced and given back together. Narrow tiles spend few
  // instructions on a chunk, so barriers and addresses of each would show.
  static constexpr int kStageChunks = kStageChunksOf;
  static constexpr int kRoundStages = kAhead / kStageChunks;
  static constexpr int kChunkBytes = kTileRows * 128;
  static constexpr int kStageBytes = kStageChunks * kChunkBytes;
  static constexpr int kStages = 200 * 1024 / kStageBytes;
  // Stages asked for before the oldest is awaited and announced: enough to cover the latency of a
  // copy; the others are what the multiplying warps may take.
  static constexpr int kLag = kStageChunks > 1 ? 2 : 3;
  static constexpr int kMaxExperts = 1024;
  // Words decoded and multiplied together, and sets of their fragments: all but one are read by the
  // tensor cores while that one is decoded.
  static constexpr int kGroupWords = kGroupWordsOf;
  static constexpr int kBuffers = kBuffersOf;
  // Registers of a thread at the start, which the warpgroups then share out among themselves.
  static constexpr int kRegisters = 64 * 1024 / kThreads / 8 * 8;
  static constexpr int kMultiplyRegisters = kMultiplyGroups == 2 ? 216 : 104;
  static constexpr int kGatherRegisters = kMultiplyGroups == 2 ? 72 : 64;
  static_assert(kMultiplyGroups == 2 || kMultiplyGroups == 4, "registers are set for these");
  static_assert(kMultiplyGroups * kMultiplyRegisters + kGatherRegisters <=
                    (kMultiplyGroups + 1) * kRegisters,
                "warpgroups that ask for more than the block has wait for ever");
  static_assert(kTileRows % 16 == 0 && kTileRows <= 256, "instructions of 16 to 256 columns");
  static_assert(kAhead % kStageChunks == 0, "a round takes whole stages");
  static_assert(kAhead * 4 / kGroupWords % kBuffers == 0,
                "a round begins with the first fragments");
  static_assert(kBuffers - 1 < kStageChunks * 4 / kGroupWords,
                "the last products of a stage end while those of the next one are asked for");
  static_assert(kLag < kStages, "a stage must be announced before it can be awaited empty");
};

// Rounds of kAhead chunks in which a tile is multiplied; chunks past the matrix count as zeros of
// x.
template <typename Config>
__device__ __forceinline__ std::int32_t tile_rounds(std::int32_t chunks) {
  return (chunks + Config::kAhead - 1) / Config::kAhead;
}

template <typename Config>
struct GroupedShared {
  alignas(1024) unsigned char x[Config::kStages][Config::kStageBytes];
  std::uint64_t full[Config::kStages];              // one a gathering warp
  std::uint64_t empty[Config::kStages];             // one a multiplying warp
  std::int32_t row_tiles[Config::kMaxExperts + 1];  // before each expert
  std::int32_t rows[Config::kMaxExperts + 1];       // the same: slice_offs
};

// Rows first_row .. first_row + count - 1 of an expert times weight bands from first_band.
struct GroupedTile {
  std::int32_t expert;
  std::int32_t first_row;
  std::int32_t count;
  std::int32_t first_band;
};

// Tiles in order: experts, rows of x, weight rows (fastest, so that concurrent blocks share x).
template <typename Config>
struct GroupedTiles {
  const GroupedShared<Config>& shared;
  std::int32_t num_experts;
  std::int32_t band_tiles;

  __device__ __forceinline__ std::int32_t count() const {
    return shared.row_tiles[num_experts] * band_tiles;
  }
  __device__ __forceinline__ GroupedTile at(std::int32_t index) const {
    const std::int32_t row_tile = index / band_tiles;
    std::int32_t low = 0;
    std::int32_t high = num_experts - 1;  // the last expert with row_tiles[e] <= row_tile
    while (low < high) {
      const std::int32_t middle = (low + high + 1) / 2;
      if (shared.row_tiles[middle] <= row_tile) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const std::int32_t done = (row_tile - shared.row_tiles[low]) * Config::kTileRows;
    const std::int32_t first = shared.rows[low] + done;
    return {low, first, min(shared.rows[low + 1] - first, Config::kTileRows),
            index % band_tiles * Config::kTileBands};
  }
};

template <typename Config>
__device__ void count_row_tiles(GroupedShared<Config>& shared, const std::int32_t* slice_offs,
                                std::int32_t num_experts, std::int32_t lane) {
  std::int32_t before = 0;
  for (std::int32_t base = 0; base < num_experts; base += 32) {
    const std::int32_t expert = base + lane;
    const std::int32_t first = expert < num_experts ? slice_offs[expert] : 0;
    const std::int32_t rows = expert < num_experts ? slice_offs[expert + 1] - first : 0;
    const std::int32_t mine = (rows + Config::kTileRows - 1) / Config::kTileRows;
    std::int32_t upto = mine;
    for (std::int32_t step = 1; step < 32; step *= 2) {
      const std::int32_t other = __shfl_up_sync(0xFFFFFFFFU, upto, step);
      upto += lane >= step ? other : 0;
    }
    if (expert < num_experts) {
      shared.row_tiles[expert] = before + upto - mine;
      shared.rows[expert] = first;
    }
    before += __shfl_sync(0xFFFFFFFFU, upto, 31);
  }
  if (lane == 0) {
    shared.row_tiles[num_experts] = before;
    shared.rows[num_experts] = slice_offs[num_experts];
  }
}

template <typename Config>
struct GroupedSlot {
  std::int32_t index = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == Config::kStages) {
      index = 0;
      parity ^= 1U;
    }
  }
};

// Calls `run` with the columns of the narrowest instruction for a tile of `count` rows.
template <int kColumns>
struct Columns {};
template <typename Config, int kColumns = 16, typename Run>
__device__ __forceinline__ void with_columns(std::int32_t count, const Run& run) {
  constexpr int kNext = kColumns < 64    ? kColumns + 16
                        : kColumns < 96  ? 96
                        : kColumns < 128 ? 128
                        : kColumns < 192 ? 192
                                         : 256;
  if constexpr (kColumns >= Config::kTileRows) {
    run(Columns<kColumns>{});
  } else if (count <= kColumns) {
    run(Columns<kColumns>{});
  } else {
    with_columns<Config, kNext>(count, run);
  }
}

}  // namespace nibble::kernels::device
