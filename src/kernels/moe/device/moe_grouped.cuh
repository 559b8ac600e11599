// Expert products of many rows: persistent blocks walk tiles of 128 or 192 weight rows x up to
// kTileRows rows of one expert.
//
// Two or three warpgroups own 64 weight rows each. A warp streams its 16-row band from global
// memory into registers, kAhead chunks before their use and across tile ends, decodes a chunk while
// the tensor cores multiply the one before, and hands it over as the register operand of wgmma.
// Four more warps gather the rows of x into a ring of swizzled shared memory with cp.async. Only
// rows of x pass through shared memory, so the ring is deep and the warpgroups drift apart: one
// stores its tile while the others multiply.
//
// An expert's rows are cut into full tiles and a remainder, and a tile runs on the narrowest
// instruction that holds it. Rows past a tile's end repeat its last row; their sums are not stored.
//
// Sums: fp32, 16 columns after 16 columns, in order.
#pragma once

#include "kernels/common/ptx_cp_async.cuh"
#include "kernels/common/ptx_grid.cuh"
#include "kernels/common/ptx_mbarrier.cuh"
#include "kernels/common/ptx_wgmma.cuh"
#include "kernels/moe/device/expert_product.cuh"

namespace nibble::kernels::device {

template <int kTileRowsOf, int kMultiplyGroupsOf, int kAheadOf, int kGroupWordsOf>
struct GroupedConfig {
  static constexpr int kTileRows = kTileRowsOf;              // most rows of x in a tile
  static constexpr int kMultiplyGroups = kMultiplyGroupsOf;  // warpgroups of 64 weight rows
  static constexpr int kAhead = kAheadOf;                    // chunks of weights ahead
  static constexpr int kTileBands = kMultiplyGroups * 4;
  static constexpr int kGatherWarps = 4;
  static constexpr int kMultiplyThreads = kMultiplyGroups * 128;
  static constexpr int kThreads = kMultiplyThreads + kGatherWarps * 32;
  static constexpr int kStageBytes = kTileRows * 128;
  static constexpr int kStages = 192 * 1024 / kStageBytes < 24 ? 192 * 1024 / kStageBytes : 24;
  // Stages asked for before the oldest is awaited and announced: enough to cover the latency of a
  // copy; the others are what the multiplying warps may take.
  static constexpr int kLag = kTileRows > 128 ? 3 : kTileRows > 64 ? 4 : 8;
  static constexpr int kMaxExperts = 1024;
  // Words decoded and multiplied together: one group is read by the tensor cores while the next is
  // decoded. Wide sums leave room for half a chunk.
  static constexpr int kGroupWords = kGroupWordsOf;
  static constexpr int kMultiplyRegisters = kTileRows == 256       ? 232
                                            : kMultiplyGroups == 2 ? 216
                                                                   : 152;
  static constexpr int kGatherRegisters = kTileRows == 256 ? 40 : kMultiplyGroups == 2 ? 72 : 56;
  static_assert(kMultiplyGroups == 2 || kMultiplyGroups == 3, "registers are set for these");
  static_assert(kMultiplyGroups * kMultiplyRegisters + kGatherRegisters <= 512,
                "64 Ki registers on a multiprocessor, 128 threads a warpgroup");
  static_assert(kTileRows % 16 == 0 && kTileRows <= 256, "instructions of 16 to 256 columns");
  static_assert(kLag < kStages, "a stage must be announced before it can be awaited empty");
};

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
  constexpr int kNext = kColumns < 32    ? 32
                        : kColumns < 64  ? 64
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

template <typename Config>
struct Gatherer {
  static constexpr int kPassRows = Config::kGatherWarps * 4;  // eight pieces of 16 bytes a row
  static constexpr int kUnroll = 3;  // chunks between pointer updates: addresses are immediate

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

  template <int kColumns>
  __device__ __forceinline__ void tile(const ExpertProduct& args, GroupedShared<Config>& shared,
                                       const GroupedTile& tile) {
    constexpr int kRows = kColumns / kPassRows;  // of one thread
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
    // Rows of one thread are the same modulo 8, which decides the swizzle.
    const auto place = static_cast<std::uint32_t>(row * 128 + ((piece ^ row % 8) * 16));
    const std::int32_t full = args.weight.cols / formats::kChunkCols;
    for (std::int32_t base = 0; base < full; base += kUnroll) {
#pragma unroll
      for (int c = 0; c < kUnroll; ++c) {
        if (base + c < full) {
          const std::uint32_t to = begin(shared, place);
#pragma unroll
          for (int j = 0; j < kRows; ++j) {
            cp_async_cg_16(to + j * kPassRows * 128U, rows[j] + c * 8);
          }
          commit(shared);
        }
      }
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        rows[j] += kUnroll * 8;
      }
    }
    if (full < args.weight.chunks) {  // half a chunk: 32 columns and zeros
      const std::uint32_t to = begin(shared, place);
      const std::int32_t back = (full + kUnroll - 1) / kUnroll * kUnroll - full;
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        cp_async_cg_16(to + j * kPassRows * 128U, rows[j] - (piece < 4 ? back * 8 : (back + 1) * 8),
                       piece < 4 ? 16U : 0U);
      }
      commit(shared);
    }
  }

  __device__ __forceinline__ void finish(GroupedShared<Config>& shared) {
    cp_async_wait_group<0>();
    while (waiting > 0) {
      announce_oldest(shared);
    }
  }
};

// One warp's weights: its band of a tile, kAhead chunks in registers.
template <typename Config>
struct BandWeights {
  LaneChunk ahead[Config::kAhead] = {};
  LaneStream stream;
  bool is_band = false;

  __device__ __forceinline__ void seek(const ExpertProduct& args, const GroupedTile& tile,
                                       std::int32_t warp, std::int32_t lane) {
    const std::int32_t band = tile.first_band + warp;
    is_band = band < args.weight.bands;
    stream.seek(args.weight, tile.expert, is_band ? band : 0, 0, lane);
  }
  // What lies past the matrix keeps old weights: their sums are not stored, their chunks not used.
  __device__ __forceinline__ void load(const ExpertProduct& args, std::int32_t chunk, int place) {
    if (is_band && chunk < args.weight.chunks) {
      ahead[place] = stream.load(chunk);
    }
  }
};

template <int kElements>
__device__ __forceinline__ void keep_in_registers(float (&values)[kElements]) {
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    asm volatile("" : "+f"(values[i])::"memory");
  }
}

// The products of one warpgroup on a tile: words are decoded into one set of fragments while the
// tensor cores read the other. No branch lies between the products and the wait for them: the
// assembler keeps the registers under their reads only along straight code and loops.
template <typename Config, int kColumns>
struct TileProducts {
  static constexpr int kWords = Config::kGroupWords;
  static constexpr int kGroups = 4 / kWords;  // of a chunk
  static_assert(kGroups > 1, "the wait inside a chunk frees the stage of the chunk before");

  GroupedShared<Config>& shared;
  GroupedSlot<Config>& slot;
  std::int32_t previous = -1;  // stage whose products are under way
  float sums[kColumns / 2];

  __device__ __forceinline__ TileProducts(GroupedShared<Config>& with, GroupedSlot<Config>& from)
      : shared(with), slot(from) {
#pragma unroll
    for (float& sum : sums) {
      sum = 0.0F;
    }
  }

  __device__ __forceinline__ void release(std::int32_t stage) {
    if (stage >= 0 && threadIdx.x % 32 == 0) {
      mbarrier_arrive(&shared.empty[stage]);
    }
  }

  __device__ __forceinline__ void chunk(const LaneChunk& chunk,
                                        std::uint32_t (&fragments)[2][kWords][4]) {
    const std::uint32_t words[4] = {chunk.words.x, chunk.words.y, chunk.words.z, chunk.words.w};
    const RowFactors factors[2] = {row_factors<0>(chunk.scales), row_factors<1>(chunk.scales)};
    const std::uint64_t x = wgmma_descriptor(shared_address(shared.x[slot.index]));
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      auto& mine = fragments[group % 2];
      wgmma_wait_group<1>();
      if (group == 1) {
        release(previous);
        previous = slot.index;
      }
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const int word = group * kWords + w;
        decode_word(words[word], factors[word / 2], mine[w]);
      }
      if (group == 0) {
        mbarrier_wait(&shared.full[slot.index], slot.parity);
      }
      wgmma_fence();
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        Wgmma<kColumns>::run(sums, mine[w], x + static_cast<unsigned>(2 * (group * kWords + w)));
      }
      wgmma_commit_group();
    }
    slot.next();
  }

  // Waits for everything.
  __device__ __forceinline__ void finish() {
    wgmma_wait_group<0>();
    keep_in_registers(sums);
    release(previous);
    previous = -1;
  }
};

// All chunks of one tile. The first weights of tile `next` are loaded in the places that become
// free, if there is such a tile.
template <typename Config, int kColumns>
__device__ __forceinline__ void multiply_tile(const ExpertProduct& args,
                                              const GroupedTiles<Config>& tiles,
                                              BandWeights<Config>& weights, std::int32_t next,
                                              TileProducts<Config, kColumns>& products) {
  constexpr int kAhead = Config::kAhead;
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / 32;
  const std::int32_t lane = static_cast<std::int32_t>(threadIdx.x) % 32;
  const std::int32_t chunks = args.weight.chunks;
  const std::int32_t whole = chunks / kAhead * kAhead;
  std::uint32_t fragments[2][Config::kGroupWords][4];
  std::int32_t wanted = kAhead;  // first chunk to load in a round
  for (std::int32_t base = 0; base < whole; base += kAhead) {
    if (wanted >= chunks && next < tiles.count()) {
      weights.seek(args, tiles.at(next), warp, lane);
      wanted = 0;
    }
#pragma unroll
    for (int c = 0; c < kAhead; ++c) {
      products.chunk(weights.ahead[c], fragments);
      weights.load(args, wanted + c, c);
    }
    wanted += kAhead;
  }
  products.finish();
  if (whole == chunks) {
    return;
  }
#pragma unroll
  for (int c = 0; c < kAhead; ++c) {
    if (whole + c < chunks) {
      products.chunk(weights.ahead[c], fragments);
      products.finish();
    }
  }
  if (next < tiles.count()) {
    weights.seek(args, tiles.at(next), warp, lane);
#pragma unroll
    for (int c = 0; c < kAhead; ++c) {
      weights.load(args, c, c);
    }
  }
}

template <typename Config, Epilogue kEpilogue, int kColumns>
__device__ __forceinline__ void run_tile(const ExpertProduct& args, GroupedShared<Config>& shared,
                                         const GroupedTiles<Config>& tiles,
                                         BandWeights<Config>& weights, GroupedSlot<Config>& slot,
                                         const GroupedTile& tile, std::int32_t next) {
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / 32;
  const std::int32_t lane = static_cast<std::int32_t>(threadIdx.x) % 32;
  const BandTail tail(args, tile.expert, tile.first_band + warp, lane);
  TileProducts<Config, kColumns> products(shared, slot);
  multiply_tile<Config, kColumns>(args, tiles, weights, next, products);
#pragma unroll
  for (int f = 0; f < kColumns / 8; ++f) {
    store_fragment<kEpilogue>(args, tail, products.sums + f * 4, tile.first_band + warp, lane,
                              tile.first_row + f * 8, tile.count - f * 8);
  }
}

template <typename Config, Epilogue kEpilogue>
__device__ __forceinline__ void grouped_multiply(const ExpertProduct& args,
                                                 GroupedShared<Config>& shared,
                                                 const GroupedTiles<Config>& tiles) {
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / 32;
  const std::int32_t lane = static_cast<std::int32_t>(threadIdx.x) % 32;
  const std::int32_t count = tiles.count();
  auto index = static_cast<std::int32_t>(blockIdx.x);
  if (index >= count) {
    return;
  }
  BandWeights<Config> weights;
  weights.seek(args, tiles.at(index), warp, lane);
#pragma unroll
  for (int c = 0; c < Config::kAhead; ++c) {
    weights.load(args, c, c);
  }
  GroupedSlot<Config> slot;
  while (index < count) {
    const GroupedTile tile = tiles.at(index);
    index += static_cast<std::int32_t>(gridDim.x);
    with_columns<Config>(tile.count, [&]<int kColumns>(Columns<kColumns>) {
      run_tile<Config, kEpilogue, kColumns>(args, shared, tiles, weights, slot, tile, index);
    });
  }
}

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

template <typename Config, Epilogue kEpilogue>
__global__ void __launch_bounds__(Config::kThreads, 1)
    moe_grouped(const __grid_constant__ ExpertProduct args) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<GroupedShared<Config>*>(raw);
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / 32;
  if (!args.may_prefetch) {
    griddepcontrol_wait();
  }
  griddepcontrol_launch_dependents();
  if (warp == 0) {
    count_row_tiles(shared, args.slice_offs, args.num_experts,
                    static_cast<std::int32_t>(threadIdx.x));
  } else if (threadIdx.x == 32) {
    for (int i = 0; i < Config::kStages; ++i) {
      mbarrier_init(&shared.full[i], Config::kGatherWarps);
      mbarrier_init(&shared.empty[i], Config::kTileBands);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  const GroupedTiles<Config> tiles{
      shared, args.num_experts, (args.weight.bands + Config::kTileBands - 1) / Config::kTileBands};
  if (warp < Config::kTileBands) {
    setmaxnreg_inc<Config::kMultiplyRegisters>();
    grouped_multiply<Config, kEpilogue>(args, shared, tiles);
  } else {
    setmaxnreg_dec<Config::kGatherRegisters>();
    griddepcontrol_wait();
    grouped_gather(args, shared, tiles);
  }
}

}  // namespace nibble::kernels::device
