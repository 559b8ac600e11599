// The warps of moe_grouped that gather rows of x into the ring with cp.async.
#pragma once

#include "kernels/common/ptx_cp_async.cuh"
#include "kernels/common/ptx_mbarrier.cuh"
#include "kernels/moe/device/moe_grouped_tiles.cuh"

namespace nibble::kernels::device {

template <typename Config>
struct Gatherer {
  static constexpr int kPassRows = Config::kGatherWarps * 4;  // eight pieces of 16 bytes a row
  // Chunks between pointer updates: addresses are immediate.
  static constexpr int kUnrollStages = Config::kStageChunks > 1 ? 1 : 3;
  // Rows past a tile's end are left out, or repeat its last row: a wide tile lacks few of them, and
  // a comparison for each of its copies costs more.
  static constexpr bool kLeavesOut = Config::kTileRows <= 64;

  GroupedSlot<Config> fill;
  GroupedSlot<Config> announce;
  std::int32_t waiting = 0;

  // The oldest stage asked for has landed; the tensor cores may read it.
  __device__ __forceinline__ void announce_oldest(GroupedShared<Config>& shared) {
    fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      mbarrier_arrive(&shared.full[announce.index]);
    }
    announce.next();
    --waiting;
  }
  // Ends a stage whose copies are all asked for.
  __device__ __forceinline__ void commit(GroupedShared<Config>& shared) {
    cp_async_commit_group();
    fill.next();
    if (++waiting > Config::kLag) {
      cp_async_wait_group<Config::kLag>();
      announce_oldest(shared);
    }
  }
  // Where this thread's piece of its first row goes.
  __device__ __forceinline__ std::uint32_t begin(GroupedShared<Config>& shared,
                                                 std::uint32_t place) {
    mbarrier_wait(&shared.empty[fill.index], fill.parity ^ 1U);
    return shared_address(shared.x[fill.index]) + place;
  }

  // One chunk of the thread's rows, `offset` pieces behind where `rows` point; `bytes` 0: zeros.
  template <int kRows>
  __device__ __forceinline__ void copy_chunk(std::uint32_t to, const uint4* const (&rows)[kRows],
                                             std::int32_t num_rows, std::int32_t offset,
                                             std::uint32_t bytes) {
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      if (!kLeavesOut || j < num_rows) {
        cp_async_cg_16(to + j * kPassRows * 128U, rows[j] + offset, bytes);
      }
    }
  }

  template <int kColumns>
  __device__ __forceinline__ void tile(const ExpertProduct& args, GroupedShared<Config>& shared,
                                       const GroupedTile& tile) {
    constexpr int kRows = (kColumns + kPassRows - 1) / kPassRows;  // of one thread
    const std::int32_t thread = static_cast<std::int32_t>(threadIdx.x) - Config::kMultiplyThreads;
    const std::int32_t piece = thread % 8;
    const std::int32_t row = thread / 8;
    const uint4* rows[kRows];
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const std::int32_t at = tile.first_row + min(row + kPassRows * j, tile.count - 1);
      rows[j] =
          reinterpret_cast<const uint4*>(args.x + source_row(args, at) * args.weight.cols) + piece;
    }
    const std::int32_t num_rows = (tile.count - row + kPassRows - 1) / kPassRows;
    // Rows of one thread are the same modulo 8, which decides the swizzle.
    const auto place = static_cast<std::uint32_t>(row * 128 + ((piece ^ row % 8) * 16));
    // Pieces of this thread in a row: chunks past the matrix are zeros, as is half of a last chunk.
    const std::int32_t pieces = (args.weight.cols / 8 - piece + 7) / 8;
    const std::int32_t stages = tile_rounds<Config>(args.weight.chunks) * Config::kRoundStages;
    for (std::int32_t base = 0; base < stages; base += kUnrollStages) {
#pragma unroll
      for (int s = 0; s < kUnrollStages; ++s) {
        if (base + s < stages) {
          const std::int32_t left = pieces - (base + s) * Config::kStageChunks;
          const std::uint32_t to = begin(shared, place);
#pragma unroll
          for (int c = 0; c < Config::kStageChunks; ++c) {
            copy_chunk<kRows>(to + c * Config::kChunkBytes, rows, num_rows,
                              (s * Config::kStageChunks + c) * 8, c < left ? 16U : 0U);
          }
          commit(shared);
        }
      }
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        rows[j] += kUnrollStages * Config::kStageChunks * 8;
      }
    }
  }

  __device__ __forceinline__ void finish(GroupedShared<Config>& shared) {
    cp_async_wait_group<0>();
    while (waiting > 0) {
      announce_oldest(shared);
    }
  }
};

template <typename Config>
__device__ __forceinline__ void grouped_gather(const ExpertProduct& args,
                                               GroupedShared<Config>& shared,
                                               const GroupedTiles<Config>& tiles) {
  Gatherer<Config> gatherer;
  const std::int32_t count = tiles.count();
  for (auto index = static_cast<std::int32_t>(blockIdx.x); index < count;
       index += static_cast<std::int32_t>(gridDim.x)) {
    const GroupedTile tile = tiles.at(index);
    with_columns<Config>(tile.count, [&]<int kColumns>(Columns<kColumns>) {
      gatherer.template tile<kColumns>(args, shared, tile);
    });
  }
  gatherer.finish(shared);
}

}  // namespace nibble::kernels::device
