// Expert products of few rows: one pass over the weights of the experts in use at memory speed.
//
// A unit is kBands bands (16 weight rows each) of one expert times a group of up to kGroupRows of
// its rows; a block takes a contiguous run of units. Its multiplying warps cut every band along the
// inner axis, kChunks chunks each, so the part of x that a warp needs stays in its registers from
// unit to unit, and every warp has the chunks of its next unit on their way, across groups and
// experts. One more warp adds the partial sums, in order, and stores.
//
// Sums: fp32, 16 columns at a time inside a warp's chunks, then over warps: fixed by the Config.
#pragma once

#include "kernels/common/ptx_grid.cuh"
#include "kernels/common/ptx_mbarrier.cuh"
#include "kernels/moe/device/expert_product.cuh"

namespace nibble::kernels::device {

template <int kGroupRowsOf, int kWarpsOf, int kChunksOf, int kBandsOf>
struct StreamConfig {
  static constexpr int kGroupRows = kGroupRowsOf;  // rows of x multiplied in one pass
  static constexpr int kChunks = kChunksOf;        // of one warp
  static constexpr int kBands = kBandsOf;          // of a unit; asked for one unit ahead
  static constexpr int kFragments = kGroupRows / 8;
  static constexpr int kMultiplyWarps = kWarpsOf;
  static constexpr int kMaxCols = kMultiplyWarps * kChunks * formats::kChunkCols;
  static constexpr int kThreads = (kMultiplyWarps + 1) * 32;
  static constexpr int kBuffers = kFragments == 1 ? 3 : 2;  // units of partial sums between warps
  // Two fragments of x leave no registers for weights on their way: each lane keeps its own in
  // shared memory.
  static constexpr bool kIsXShared = kFragments == 2;
  static constexpr int kWords = kChunks * 4;  // words of weights of one lane and band
  static constexpr int kMaxGroups = 512;
  static_assert(kGroupRows == 8 || kGroupRows == 16, "a matrix instruction multiplies 8 rows of x");
};

// Weights enter the products without their scales, as values times 2^-126, so x is raised by 2^60
// to keep the products normal fp32 numbers; a block's scale multiplies its 32-column sum. Exact for
// |x| < 2^58. 8 fp32 operations replace 12 on bf16 pairs for each two words.
inline constexpr std::uint32_t kRaise = 0x5D805D80U;  // 2^60 twice
inline constexpr float kLower = 0x1p-60F;

// A group: rows first_row .. first_row + count - 1 of one expert.
struct StreamGroup {
  std::int32_t expert;
  std::int32_t first_row;
  std::int32_t count;
};

template <typename Config>
struct StreamShared {
  float4 partial[Config::kBuffers][Config::kBands][Config::kMultiplyWarps][Config::kFragments][32];
  // Fragments 0 and 1 of x for a word of weights, private to each lane.
  uint4 x[Config::kIsXShared ? Config::kMultiplyWarps : 1][Config::kWords][32];
  StreamGroup groups[Config::kMaxGroups];
  std::int32_t num_groups;
  std::uint64_t full[Config::kBuffers];   // one a multiplying thread: its partial sums are there
  std::uint64_t empty[Config::kBuffers];  // one a storing thread: they have been added
};

// Units of groups, walked in order; a group's units follow each other.
template <typename Config>
struct UnitWalk {
  std::int32_t group;
  std::int32_t band;  // the unit's first

  __device__ __forceinline__ UnitWalk(std::int32_t unit, std::int32_t bands) {
    const std::int32_t units = (bands + Config::kBands - 1) / Config::kBands;
    group = unit / units;
    band = unit % units * Config::kBands;
  }
  // True when a new group begins.
  __device__ __forceinline__ bool next(std::int32_t bands) {
    band += Config::kBands;
    if (band < bands) {
      return false;
    }
    band = 0;
    ++group;
    return true;
  }
};

// One warp lists the groups of every expert, in order.
template <typename Config>
__device__ void list_groups(StreamShared<Config>& shared, const std::int32_t* slice_offs,
                            std::int32_t num_experts, std::int32_t lane) {
  std::int32_t before = 0;
  for (std::int32_t base = 0; base < num_experts; base += 32) {
    const std::int32_t expert = base + lane;
    const std::int32_t first = expert < num_experts ? slice_offs[expert] : 0;
    const std::int32_t rows = expert < num_experts ? slice_offs[expert + 1] - first : 0;
    const std::int32_t mine = (rows + Config::kGroupRows - 1) / Config::kGroupRows;
    std::int32_t upto = mine;
    for (std::int32_t step = 1; step < 32; step *= 2) {
      const std::int32_t other = __shfl_up_sync(0xFFFFFFFFU, upto, step);
      upto += lane >= step ? other : 0;
    }
    for (std::int32_t i = 0; i < mine; ++i) {
      const std::int32_t done = i * Config::kGroupRows;
      shared.groups[before + upto - mine + i] = {expert, first + done,
                                                 min(rows - done, Config::kGroupRows)};
    }
    before += __shfl_sync(0xFFFFFFFFU, upto, 31);
  }
  if (lane == 0) {
    shared.num_groups = before;
  }
}

// What one lane needs of x for one group, as right-hand fragments of its words.
template <typename Config>
struct StreamX {
  std::uint32_t pairs[Config::kIsXShared ? 1 : Config::kWords][2];
  uint4* place;  // [kWords][32], at this lane

  __device__ __forceinline__ void load(const ExpertProduct& args, const StreamGroup& group,
                                       std::int32_t first_chunk, std::int32_t lane) {
#pragma unroll
    for (int f = 0; f < Config::kFragments; ++f) {
      const std::int32_t row = group.first_row + min(f * 8 + lane / 4, group.count - 1);
      const __nv_bfloat16* x = args.x + source_row(args, row) * args.weight.cols;
#pragma unroll
      for (int w = 0; w < Config::kWords; ++w) {
        const std::int32_t col = first_chunk * formats::kChunkCols + w * 16 + lane % 4 * 2;
        const std::uint32_t low = load_pair(args, x, col);
        const std::uint32_t high = load_pair(args, x, col + 8);
        if constexpr (Config::kIsXShared) {
          reinterpret_cast<uint2*>(place + w * 32)[f] = make_uint2(low, high);
        } else {
          pairs[w][0] = low;
          pairs[w][1] = high;
        }
      }
    }
  }
  // Fragments of word `w`; the second is read with the first.
  __device__ __forceinline__ uint4 word(int w) const {
    if constexpr (Config::kIsXShared) {
      return place[w * 32];
    } else {
      return make_uint4(pairs[w][0], pairs[w][1], 0U, 0U);
    }
  }

 private:
  static __device__ __forceinline__ std::uint32_t load_pair(const ExpertProduct& args,
                                                            const __nv_bfloat16* x,
                                                            std::int32_t col) {
    const std::uint32_t pair =
        col < args.weight.cols ? *reinterpret_cast<const std::uint32_t*>(x + col) : 0U;
    return mul_bf16x2(pair, kRaise);
  }
};

__device__ __forceinline__ void multiply_fragment(const std::uint32_t (&weights)[2][4], uint2 low,
                                                  uint2 high, float first, float second,
                                                  float (&sums)[4]) {
  float part[4] = {};
  mma_m16n8k16_bf16(part, weights[0], low.x, low.y);
  mma_m16n8k16_bf16(part, weights[1], high.x, high.y);
  sums[0] = fmaf(part[0], first, sums[0]);
  sums[1] = fmaf(part[1], first, sums[1]);
  sums[2] = fmaf(part[2], second, sums[2]);
  sums[3] = fmaf(part[3], second, sums[3]);
}

// One block of 32 columns: two words.
template <int kBlock, int kActive, int kFragments>
__device__ __forceinline__ void multiply_block(std::uint32_t low, std::uint32_t high,
                                               std::uint32_t scales, uint4 x_low, uint4 x_high,
                                               float (&sums)[kFragments][4]) {
  std::uint32_t weights[2][4];
  spread_word(low, weights[0]);
  spread_word(high, weights[1]);
  const float first = scale_f32<2 * kBlock>(scales);
  const float second = scale_f32<2 * kBlock + 1>(scales);
  multiply_fragment(weights, make_uint2(x_low.x, x_low.y), make_uint2(x_high.x, x_high.y), first,
                    second, sums[0]);
  if constexpr (kActive == 2) {
    multiply_fragment(weights, make_uint2(x_low.z, x_low.w), make_uint2(x_high.z, x_high.w), first,
                      second, sums[1]);
  }
}

// One band's chunks of this warp times the first 8 kActive rows of x.
template <typename Config, int kActive>
__device__ __forceinline__ void multiply_band(const LaneChunk (&chunks)[Config::kChunks],
                                              const StreamX<Config>& x,
                                              float (&sums)[Config::kFragments][4]) {
#pragma unroll
  for (int c = 0; c < Config::kChunks; ++c) {
    const LaneChunk& chunk = chunks[c];
    multiply_block<0, kActive>(chunk.words.x, chunk.words.y, chunk.scales, x.word(4 * c),
                               x.word(4 * c + 1), sums);
    multiply_block<1, kActive>(chunk.words.z, chunk.words.w, chunk.scales, x.word(4 * c + 2),
                               x.word(4 * c + 3), sums);
  }
}

// Loads of one multiplying warp, ahead of its products.
template <typename Config>
struct StreamLoads {
  LaneStream stream;
  UnitWalk<Config> walk;
  std::int32_t left;    // units not asked for
  std::int32_t chunks;  // of this warp, at most kChunks
  std::int32_t first_chunk;
  std::int32_t lane;

  __device__ __forceinline__ StreamLoads(const ExpertProduct& args,
                                         const StreamShared<Config>& shared, std::int32_t begin,
                                         std::int32_t end, std::int32_t chunk, std::int32_t at_lane)
      : walk(begin, args.weight.bands),
        left(end - begin),
        chunks(args.weight.chunks - chunk),
        first_chunk(chunk),
        lane(at_lane) {
    seek(args, shared);
  }
  __device__ __forceinline__ void seek(const ExpertProduct& args,
                                       const StreamShared<Config>& shared) {
    stream.seek(args.weight, shared.groups[walk.group].expert, walk.band, first_chunk, lane);
  }
  // Band `b` of the unit. What lies past the matrix keeps what `into` holds: zeros, or weights
  // whose sums are not stored.
  __device__ __forceinline__ void load(const ExpertProduct& args, int b,
                                       LaneChunk (&into)[Config::kChunks]) {
    if (left > 0 && walk.band + b < args.weight.bands) {
      LaneStream band = stream;
      band.skip(b * args.weight.chunks);
#pragma unroll
      for (int c = 0; c < Config::kChunks; ++c) {
        if (c < chunks) {
          into[c] = band.load(c);
        }
      }
    }
  }
  // Behind the last band of a unit.
  __device__ __forceinline__ void next(const ExpertProduct& args,
                                       const StreamShared<Config>& shared) {
    if (--left <= 0) {
      return;
    }
    if (walk.next(args.weight.bands)) {
      seek(args, shared);
    } else {
      stream.skip(Config::kBands * args.weight.chunks);
    }
  }
};

// Place of a unit in the ring of partial sums.
template <typename Config>
struct StreamSlot {
  std::int32_t index = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == Config::kBuffers) {
      index = 0;
      parity ^= 1U;
    }
  }
};

template <typename Config>
__device__ __forceinline__ void put_partial(StreamShared<Config>& shared, std::int32_t buffer,
                                            int band, std::int32_t warp, std::int32_t lane,
                                            const float (&sums)[Config::kFragments][4]) {
#pragma unroll
  for (int f = 0; f < Config::kFragments; ++f) {
    shared.partial[buffer][band][warp][f][lane] =
        make_float4(sums[f][0], sums[f][1], sums[f][2], sums[f][3]);
  }
}

template <typename Config>
__device__ void stream_multiply(const ExpertProduct& args, StreamShared<Config>& shared,
                                std::int32_t begin, std::int32_t end, std::int32_t warp,
                                std::int32_t lane) {
  const std::int32_t first_chunk = warp * Config::kChunks;
  LaneChunk ahead[Config::kBands][Config::kChunks] = {};
  StreamLoads<Config> loads(args, shared, begin, end, first_chunk, lane);
#pragma unroll
  for (int b = 0; b < Config::kBands; ++b) {
    loads.load(args, b, ahead[b]);
  }
  loads.next(args, shared);
  if (args.may_prefetch) {
    griddepcontrol_wait();
  }
  UnitWalk<Config> walk(begin, args.weight.bands);
  StreamX<Config> x;
  x.place = &shared.x[Config::kIsXShared ? warp : 0][0][lane];
  bool is_new_group = true;
  bool is_full = false;
  StreamSlot<Config> slot;
  for (std::int32_t unit = begin; unit < end; ++unit) {
    if (is_new_group) {
      x.load(args, shared.groups[walk.group], first_chunk, lane);
      is_full = shared.groups[walk.group].count > 8;
    }
    mbarrier_wait(&shared.empty[slot.index], slot.parity ^ 1U);
#pragma unroll
    for (int b = 0; b < Config::kBands; ++b) {
      float sums[Config::kFragments][4] = {};
      if (Config::kFragments == 1 || !is_full) {
        multiply_band<Config, 1>(ahead[b], x, sums);
      } else {
        multiply_band<Config, Config::kFragments>(ahead[b], x, sums);
      }
      loads.load(args, b, ahead[b]);
      put_partial(shared, slot.index, b, warp, lane, sums);
    }
    mbarrier_arrive(&shared.full[slot.index]);
    loads.next(args, shared);
    slot.next();
    is_new_group = walk.next(args.weight.bands);
  }
}

// Adds the partial sums of one band and stores it.
template <typename Config, Epilogue kEpilogue>
__device__ __forceinline__ void store_band(const ExpertProduct& args,
                                           const StreamShared<Config>& shared, std::int32_t buffer,
                                           int place, const BandTail& tail,
                                           const StreamGroup& group, std::int32_t band,
                                           std::int32_t lane) {
#pragma unroll
  for (int f = 0; f < Config::kFragments; ++f) {
    if (f * 8 < group.count) {
      float sums[4] = {};
#pragma unroll
      for (int w = 0; w < Config::kMultiplyWarps; ++w) {
        const float4 part = shared.partial[buffer][place][w][f][lane];
        sums[0] += part.x;
        sums[1] += part.y;
        sums[2] += part.z;
        sums[3] += part.w;
      }
#pragma unroll
      for (float& sum : sums) {
        sum *= kLower;
      }
      store_fragment<kEpilogue>(args, tail, sums, band, lane, group.first_row + f * 8,
                                group.count - f * 8);
    }
  }
}

template <typename Config, Epilogue kEpilogue>
__device__ void stream_store(const ExpertProduct& args, StreamShared<Config>& shared,
                             std::int32_t begin, std::int32_t end, std::int32_t lane) {
  UnitWalk<Config> walk(begin, args.weight.bands);
  StreamSlot<Config> slot;
  for (std::int32_t unit = begin; unit < end; ++unit) {
    const StreamGroup group = shared.groups[walk.group];
    // Biases come from memory: asked for before the sums are awaited.
    BandTail tails[Config::kBands];
#pragma unroll
    for (int b = 0; b < Config::kBands; ++b) {
      tails[b] = BandTail(args, group.expert, walk.band + b, lane);
    }
    mbarrier_wait(&shared.full[slot.index], slot.parity);
#pragma unroll
    for (int b = 0; b < Config::kBands; ++b) {
      store_band<Config, kEpilogue>(args, shared, slot.index, b, tails[b], group, walk.band + b,
                                    lane);
    }
    mbarrier_arrive(&shared.empty[slot.index]);
    slot.next();
    walk.next(args.weight.bands);
  }
}

template <typename Config, Epilogue kEpilogue>
__global__ void __launch_bounds__(Config::kThreads, 1)
    moe_stream(const __grid_constant__ ExpertProduct args) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<StreamShared<Config>*>(raw);
  const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / 32;
  const std::int32_t lane = static_cast<std::int32_t>(threadIdx.x) % 32;
  if (!args.may_prefetch) {
    griddepcontrol_wait();
  }
  griddepcontrol_launch_dependents();
  if (warp == 0) {
    list_groups(shared, args.slice_offs, args.num_experts, lane);
  } else if (threadIdx.x == 32) {
    for (int i = 0; i < Config::kBuffers; ++i) {
      mbarrier_init(&shared.full[i], Config::kMultiplyWarps * 32);
      mbarrier_init(&shared.empty[i], 32);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  const std::int64_t units =
      std::int64_t{shared.num_groups} * ((args.weight.bands + Config::kBands - 1) / Config::kBands);
  const auto begin = static_cast<std::int32_t>(units * blockIdx.x / gridDim.x);
  const auto end = static_cast<std::int32_t>(units * (blockIdx.x + 1) / gridDim.x);
  if (begin == end) {
    griddepcontrol_wait();  // the grid behind this one relies on the one in front
    return;
  }
  if (warp < Config::kMultiplyWarps) {
    stream_multiply(args, shared, begin, end, warp, lane);
  } else {
    stream_store<Config, kEpilogue>(args, shared, begin, end, lane);
  }
}

}  // namespace nibble::kernels::device
