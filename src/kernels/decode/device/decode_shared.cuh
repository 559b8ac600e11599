// What the warps of a block of the decode kernel share, and how its parts are laid out.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/common/ptx_bulk.cuh"
#include "kernels/decode/device/decode_args.h"

namespace nibble::kernels::device {

struct DecodeConfig {
  // 15 multiply and one asks for weights: 16 warps may have 128 registers a thread, 17 only 96,
  // since one scheduler then has five. What is spilled misses the little L1 that is left.
  static constexpr int kWarps = 15;
  static constexpr int kMultiplyThreads = 32 * kWarps;
  static constexpr int kThreads = kMultiplyThreads + 32;
  // 4 rows of 2,880 bf16, 3 of 4,096, or a band of 45 chunks of an expert.
  static constexpr int kSlots = 8;
  static constexpr int kSlotBytes = 24576;
  // Slots that are on their way at once: enough for the memory's speed. With more, whatever else a
  // block reads waits behind them, and blocks wait for each other's words.
  static constexpr int kInFlight = 2;
  // Rows of dense weights: a slot's rows go to four warps each, a quarter of the columns a warp.
  static constexpr int kQuarters = 4;
  static constexpr int kMaxRowsOfSlot = 4;
  static constexpr int kDenseGroups = 3;  // slots that are multiplied at once
  // A slot is left by kSlotArrivals: of all warps, or of the four of a group.
  static constexpr int kSlotArrivals = kWarps * kQuarters;
  static constexpr int kMaxPieces = 4;  // 16-byte pieces of a lane in a quarter
  static constexpr int kMaxDenseCols = kMaxPieces * 32 * 8 * kQuarters;
  static constexpr int kGroupRows = 128;  // stored together
  // Bands of experts: 15 warps of three chunks.
  static constexpr int kBandWarps = 15;
  static constexpr int kChunks = 3;
  static constexpr int kMaxExpertCols = kBandWarps * kChunks * 64;
  static constexpr int kMaxBands = 11;  // of a block
  static constexpr int kMaxHidden = 2880;
  static constexpr int kInputPieces = 720;  // 16 bytes each: 5,760 bf16
  // Attention.
  static constexpr int kHeadDim = 64;
  static constexpr int kMaxGroup = 8;
  static constexpr int kKeyWarps = 9;  // a window of 128 keys touches nine tiles at most
  static constexpr int kTileKeys = 16;
  // Routing.
  static constexpr int kMaxOwnRows = 24;
  static constexpr int kMaxExperts = 128;
  static constexpr int kRouterWords = kMaxOwnRows / 2 + 1;  // the first and last by half
  static constexpr int kMaxBlocks = 160;
  static constexpr int kMaxTopK = 4;
};

struct DecodeProducts {
  uint4 x[DecodeConfig::kInputPieces];  // input of the running product, bf16
  union {
    float rows[2][DecodeConfig::kGroupRows][DecodeConfig::kQuarters];
    float bands[DecodeConfig::kMaxBands][DecodeConfig::kBandWarps][16];
    struct {  // of q, k, v and of the output product, which are one group of rows
      float own_rows[DecodeConfig::kGroupRows][DecodeConfig::kQuarters];
      // Brought while the product runs: a load that is still under way holds up whatever else its
      // warp waits for.
      float row_bias[DecodeConfig::kGroupRows];
      float row_norm[DecodeConfig::kMaxOwnRows];  // weights
      float
          own_normed[DecodeConfig::kMaxOwnRows];  // rows of the residual that this block computes,
      float own[DecodeConfig::kMaxOwnRows];       // times the norm's weights, and as they are
      // Pairs of bf16: the router's columns of this block's rows.
      std::uint32_t router[DecodeConfig::kMaxExperts][DecodeConfig::kRouterWords];
    };
  };
};

struct DecodeAttention {
  float state[DecodeConfig::kKeyWarps][DecodeConfig::kMaxGroup][kDecodeStateFloats];
  float sinks[DecodeConfig::kMaxGroup];
  uint4 q[DecodeConfig::kMaxGroup][8];  // bf16 [64] each
  uint4 k[8];
  uint4 v[8];
};

// Lies at the start of a block's shared memory. The phases of the kernel are functions of their
// own, so that none holds registers for another; what they are given lies here too.
struct DecodeShared {
  unsigned char ring[DecodeConfig::kSlots][DecodeConfig::kSlotBytes];
  float residual[DecodeConfig::kMaxHidden];
  union {
    DecodeProducts products;
    DecodeAttention attention;
  };
  float cosine[DecodeConfig::kHeadDim / 2];
  float sine[DecodeConfig::kHeadDim / 2];
  float logits[DecodeConfig::kMaxExperts + 1];  // and the sum of squares
  float squares[DecodeConfig::kWarps];
  float factor;                                          // of the norm
  std::uint32_t band_bias[DecodeConfig::kMaxBands * 8];  // pairs of bf16
  float band_factors[2];                                 // of both slots that bands may belong to
  std::int32_t ids[DecodeConfig::kMaxTopK];
  float weights[DecodeConfig::kMaxTopK];
  struct {
    const std::int32_t* pages;
    std::int32_t first_page;
    std::int64_t slot;
  } caches[kDecodeCaches];
  std::uint64_t full[DecodeConfig::kSlots];   // the slot's bytes are there
  std::uint64_t empty[DecodeConfig::kSlots];  // every multiplying warp has read them
  std::uint64_t routed;                       // ids are known
  std::int64_t began_ns;
  volatile std::int32_t is_lost;
  DecodeStepArgs args;    // its span of layers is not used:
  DecodeLayer layers[2];  // the running one and the next
  DecodeExchange exchange;
  // This block's part of the work.
  DecodeRange qkv_rows;
  DecodeRange own_rows;  // of the residual
  DecodeRange gate_up_units;
  DecodeRange down_units;
  DecodeRange vocab_rows;
  std::int32_t gate_up_slot;  // of top-k, of the first unit
  std::int32_t down_slot;
  std::int32_t group;  // heads of a kv head
  std::int32_t max_splits;
  std::int32_t kv_head;  // of this block's keys
  std::int32_t split;
  std::int32_t page_shift;

  const __device__ __forceinline__ DecodeSizes& sizes() const { return args.sizes; }
  const __device__ __forceinline__ DecodeLayer& layer(int index) const { return layers[index & 1]; }
  // Words of layer `index`'s exchange that begin at `part`.
  __device__ __forceinline__ std::uint32_t* words(int index, std::int64_t part) const {
    return args.exchange + index * exchange.words + part;
  }
  __device__ __forceinline__ void mark(int index, DecodeMark at) const {
    if (args.marks != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
      args.marks[index * kDecodeMarks + static_cast<int>(at)] = clock64();
    }
  }
};

__device__ __forceinline__ DecodeShared& block_shared() {
  extern __shared__ __align__(128) unsigned char decode_shared_bytes[];
  return *reinterpret_cast<DecodeShared*>(decode_shared_bytes);
}

static_assert(sizeof(DecodeShared) <= 232448, "what a block may have on compute capability 9.0");

// Position of producer and consumers in the ring.
struct RingPlace {
  std::uint32_t index = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == DecodeConfig::kSlots) {
      index = 0;
      parity ^= 1U;
    }
  }
};

// All multiplying warps.
__device__ __forceinline__ void sync_multiplying() {
  asm volatile("bar.sync 1, %0;" ::"n"(DecodeConfig::kMultiplyThreads) : "memory");
}

__device__ __forceinline__ void wait_full(DecodeShared& shared, const RingPlace& place) {
  mbarrier_wait(&shared.full[place.index], place.parity);
}
// What the warp wanted of the slot is in its registers. `arrivals` of the warps that share a slot
// are kSlotArrivals together.
__device__ __forceinline__ void leave_slot(DecodeShared& shared, const RingPlace& place,
                                           bool is_first_lane, std::uint32_t arrivals) {
  __syncwarp();
  if (is_first_lane) {
    mbarrier_arrive_many(&shared.empty[place.index], arrivals);
  }
}

// As many rows of `cols` bf16 as a slot takes.
__device__ __forceinline__ int rows_of_slot(int cols) {
  static_assert(DecodeConfig::kMaxDenseCols * 2 * 3 <= DecodeConfig::kSlotBytes);
  return cols * 2 * DecodeConfig::kMaxRowsOfSlot <= DecodeConfig::kSlotBytes
             ? DecodeConfig::kMaxRowsOfSlot
             : 3;
}

// Asked for anew by each phase: what is derived from it must not live in registers through all.
__device__ __forceinline__ int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}
__device__ __forceinline__ int warp_index() { return thread_index() / 32; }
__device__ __forceinline__ int lane_index() { return thread_index() % 32; }

}  // namespace nibble::kernels::device
