// Expert products of many rows: persistent blocks walk tiles of 128 or 256 weight rows x up to
// kTileRows rows of one expert.
//
// Two or four warpgroups own 64 weight rows each. A warp streams its 16-row band from global
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

#include "kernels/common/ptx_grid.cuh"
#include "kernels/common/ptx_wgmma.cuh"
#include "kernels/moe/device/moe_grouped_gather.cuh"
#include "kernels/moe/device/moe_grouped_tiles.cuh"

namespace nibble::kernels::device {

// One warp's weights: its band of a tile, a round of chunks in registers.
template <typename Config>
struct BandWeights {
  LaneChunk ahead[Config::kAhead] = {};
  LaneStream stream;      // at the first chunk of the round to ask for
  std::int32_t left = 0;  // chunks from there on

  __device__ __forceinline__ void seek(const ExpertProduct& args, const GroupedTile& tile) {
    const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / 32;
    const std::int32_t lane = static_cast<std::int32_t>(threadIdx.x) % 32;
    const std::int32_t band = tile.first_band + warp;
    const bool is_band = band < args.weight.bands;
    left = is_band ? args.weight.chunks : 0;
    stream.seek(args.weight, tile.expert, is_band ? band : 0, 0, lane);
  }
  // Chunk `place` of the round. What lies past the matrix keeps old weights: the sums of bands are
  // not stored, chunks are multiplied by zeros.
  __device__ __forceinline__ void load(int place) {
    if (place < left) {
      ahead[place] = stream.load(place);
    }
  }
  __device__ __forceinline__ void advance() {
    stream.skip(Config::kAhead);
    left -= Config::kAhead;
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
// tensor cores read the others. No branch lies between the products and the wait for them: the
// assembler keeps the registers under their reads only along straight code and loops.
template <typename Config, int kColumns>
struct TileProducts {
  static constexpr int kWords = Config::kGroupWords;
  static constexpr int kGroups = 4 / kWords;  // of a chunk
  static constexpr int kUnderWay = Config::kBuffers - 1;

  GroupedShared<Config>& shared;
  GroupedSlot<Config>& slot;
  std::int32_t previous = -1;  // stage whose products are under way
  std::uint32_t x = 0;         // low word of the descriptor of the stage
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
  // Words [group * kWords, ..) of chunk `place` of a stage.
  __device__ __forceinline__ void multiply(int place, int group,
                                           const std::uint32_t (&mine)[kWords][4]) {
    wgmma_fence();
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const auto step =
          static_cast<std::uint32_t>(place * Config::kChunkBytes / 16 + 2 * (group * kWords + w));
      Wgmma<kColumns>::run(sums, mine[w], wgmma_descriptor_of(x + step));
    }
    wgmma_commit_group();
  }

  // Chunk `place` of a round.
  __device__ __forceinline__ void chunk(int place, const LaneChunk& chunk,
                                        std::uint32_t (&fragments)[Config::kBuffers][kWords][4]) {
    const std::uint32_t words[4] = {chunk.words.x, chunk.words.y, chunk.words.z, chunk.words.w};
    const RowFactors factors[2] = {row_factors<0>(chunk.scales), row_factors<1>(chunk.scales)};
    const int in_stage = place % Config::kStageChunks;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      auto& mine = fragments[(place * kGroups + group) % Config::kBuffers];
      wgmma_wait_group<kUnderWay>();
      if (in_stage * kGroups + group == kUnderWay) {
        release(previous);
        previous = slot.index;
      }
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const int word = group * kWords + w;
        decode_word(words[word], factors[word / 2], mine[w]);
      }
      if (in_stage == 0 && group == 0) {
        // The same in every lane, which the compiler cannot know.
        x = __shfl_sync(0xFFFFFFFFU, wgmma_descriptor_low(shared_address(shared.x[slot.index])), 0);
        mbarrier_wait(&shared.full[slot.index], slot.parity);
      }
      multiply(in_stage, group, mine);
    }
    if (in_stage == Config::kStageChunks - 1) {
      slot.next();
    }
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
  std::uint32_t fragments[Config::kBuffers][Config::kGroupWords][4];
  for (std::int32_t rounds = tile_rounds<Config>(args.weight.chunks); rounds > 0; --rounds) {
    if (rounds == 1 && next < tiles.count()) {
      weights.seek(args, tiles.at(next));
    }
#pragma unroll
    for (int c = 0; c < Config::kAhead; ++c) {
      products.chunk(c, weights.ahead[c], fragments);
      weights.load(c);
    }
    weights.advance();
  }
  products.finish();
}

// Tile `index`; then `next`. What storing needs is looked up behind the products: it would take
// registers from them.
template <typename Config, Epilogue kEpilogue, int kColumns>
__device__ __forceinline__ void run_tile(const ExpertProduct& args, GroupedShared<Config>& shared,
                                         const GroupedTiles<Config>& tiles,
                                         BandWeights<Config>& weights, GroupedSlot<Config>& slot,
                                         std::int32_t index, std::int32_t next) {
  TileProducts<Config, kColumns> products(shared, slot);
  multiply_tile<Config, kColumns>(args, tiles, weights, next, products);
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / 32;
  const std::int32_t lane = static_cast<std::int32_t>(threadIdx.x) % 32;
  const GroupedTile tile = tiles.at(index);
  const BandTail tail(args, tile.expert, tile.first_band + warp, lane);
#pragma unroll
  for (int f = 0; f < kColumns / 8; ++f) {
    if (f * 8 < tile.count) {
      store_fragment<kEpilogue>(args, tail, products.sums + f * 4, tile.first_band + warp, lane,
                                tile.first_row + f * 8, tile.count - f * 8);
    }
  }
}

template <typename Config, Epilogue kEpilogue>
__device__ __forceinline__ void grouped_multiply(const ExpertProduct& args,
                                                 GroupedShared<Config>& shared,
                                                 const GroupedTiles<Config>& tiles) {
  auto index = static_cast<std::int32_t>(blockIdx.x);
  if (index >= tiles.count()) {
    return;
  }
  BandWeights<Config> weights;
  weights.seek(args, tiles.at(index));
#pragma unroll
  for (int c = 0; c < Config::kAhead; ++c) {
    weights.load(c);
  }
  weights.advance();
  GroupedSlot<Config> slot;
  while (index < tiles.count()) {
    const std::int32_t next = index + static_cast<std::int32_t>(gridDim.x);
    with_columns<Config>(tiles.at(index).count, [&]<int kColumns>(Columns<kColumns>) {
      run_tile<Config, kEpilogue, kColumns>(args, shared, tiles, weights, slot, index, next);
    });
    index = next;
  }
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
