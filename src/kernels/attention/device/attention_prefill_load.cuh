// The loading warps of attention_prefill.cuh, and what passes between them and those that multiply.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/attention/device/attention_prefill_tiles.cuh"
#include "kernels/attention/device/attention_tile.cuh"
#include "kernels/common/ptx_cp_async.cuh"
#include "kernels/common/ptx_mbarrier.cuh"

namespace nibble::kernels::device {

template <int kKeysOf, int kStagesOf, int kLagOf, bool kIsWindowOf, typename KvOf = __nv_bfloat16>
struct PrefillConfig {
  using Kv = KvOf;  // of the cache: __nv_bfloat16 or E4m3
  static constexpr bool kHasCodes = std::is_same_v<Kv, E4m3>;
  static constexpr int kKeys = kKeysOf;      // of a step
  static constexpr int kStages = kStagesOf;  // of the ring
  // Steps asked for before the oldest is awaited and announced.
  static constexpr int kLag = kLagOf;
  static constexpr bool kIsWindow = kIsWindowOf;  // every step has keys that some query misses
  static constexpr int kMultiplyGroups = 3;
  static constexpr int kGroupQueries = 64;
  static constexpr int kTileQueries = kMultiplyGroups * kGroupQueries;
  static constexpr int kMultiplyWarps = kMultiplyGroups * 4;
  static constexpr int kMultiplyThreads = kMultiplyGroups * 128;
  static constexpr int kLoadWarps = 4;
  static constexpr int kThreads = kMultiplyThreads + kLoadWarps * 32;
  static constexpr int kMultiplyRegisters = kIsWindow || kHasCodes ? 152 : 160;
  static constexpr int kLoadRegisters = kIsWindow || kHasCodes ? 56 : 32;
  static_assert(kMultiplyGroups * kMultiplyRegisters + kLoadRegisters <= 512,
                "64 Ki registers on a multiprocessor, 128 threads a warpgroup");
  static_assert(kKeys % kSegmentKeys == 0, "a page holds a multiple of kSegmentKeys tokens");
  static_assert(kLag + 2 < kStages, "two stages are multiplied while others are announced");
};

template <typename Config>
struct PrefillShared {
  alignas(1024) unsigned char q[2][Config::kTileQueries * 128];
  alignas(1024) unsigned char k[Config::kStages][Config::kKeys * 128];
  alignas(1024) unsigned char v[Config::kStages][Config::kKeys * 128];
  std::uint64_t full[Config::kStages];   // one a loading thread
  std::uint64_t empty[Config::kStages];  // one a multiplying warp
  std::uint64_t q_empty[2];  // one a multiplying thread; queries are full with their first step
  PrefillCounts counts;
};

template <int kCount>
struct RingSlot {
  int index = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == kCount) {
      index = 0;
      parity ^= 1U;
    }
  }
};

template <typename Config>
struct PrefillLoader {
  static constexpr int kPassRows = Config::kLoadWarps * 4;  // eight pieces of 16 bytes a row

  const AttentionParams& params;
  PrefillShared<Config>& shared;
  RingSlot<Config::kStages> fill;
  RingSlot<Config::kStages> announce;
  RingSlot<2> queries;
  int waiting = 0;
  int row;              // of this thread's first piece
  int piece;            // of that row
  std::uint32_t place;  // of both: rows of a thread are the same modulo 8, which decides it

  __device__ __forceinline__ PrefillLoader(const AttentionParams& from, PrefillShared<Config>& to)
      : params(from), shared(to) {
    const int thread = static_cast<int>(threadIdx.x) - Config::kMultiplyThreads;
    row = thread / 8;
    piece = thread % 8;
    place = static_cast<std::uint32_t>(row * 128 + ((piece ^ row % 8) * 16));
  }

  // The oldest stage asked for has landed; the tensor cores may read it.
  __device__ __forceinline__ void announce_oldest() {
    fence_proxy_async();
    mbarrier_arrive(&shared.full[announce.index]);
    announce.next();
    --waiting;
  }

  __device__ __forceinline__ void announce_all() {
    cp_async_wait_group<0>();
    while (waiting > 0) {
      announce_oldest();
    }
  }

  __device__ __forceinline__ void load_queries(const PrefillTile& tile) {
    std::uint64_t* const empty = &shared.q_empty[queries.index];
    if (!__all_sync(0xFFFFFFFFU, mbarrier_test(empty, queries.parity ^ 1U))) {
      announce_all();  // the tile that frees the place may wait for these
    }
    mbarrier_wait(empty, queries.parity ^ 1U);
    const std::uint32_t to = shared_address(shared.q[queries.index]) + place;
    const int group = params.num_heads / params.num_kv_heads;
    const auto* q = static_cast<const __nv_bfloat16*>(params.q) + piece * 8;
    for (int j = 0; j < Config::kTileQueries / kPassRows; ++j) {
      const int query = row + j * kPassRows;
      const int token = tile.token + query / group;
      const bool is_there = token < tile.sequence.num_rows;
      const std::int64_t q_row =
          std::int64_t{tile.sequence.first_row + (is_there ? token : 0)} * params.num_heads +
          tile.kv_head * group + query % group;
      cp_async_cg_16(to + static_cast<std::uint32_t>(j) * kPassRows * 128U,
                     q + q_row * kTileHeadDim, is_there ? 16U : 0U);
    }
    queries.next();
  }

  __device__ __forceinline__ void load_step(const PrefillTile& tile, int first) {
    mbarrier_wait(&shared.empty[fill.index], fill.parity ^ 1U);
    const std::uint32_t k_to = shared_address(shared.k[fill.index]) + place;
    const std::uint32_t v_to = shared_address(shared.v[fill.index]) + place;
#pragma unroll
    for (int half = 0; half < Config::kKeys; half += kSegmentKeys) {
      const int key = first + half;
      const bool is_seen = key < tile.end && key + kSegmentKeys > tile.begin;
      // A page that no query sees may not be in the table.
      const std::int64_t page =
          is_seen ? tile.sequence.pages[key / params.page_size - tile.sequence.first_page] : 0;
      const std::int64_t at = ((page * params.num_kv_heads + tile.kv_head) * params.page_size +
                               (is_seen ? key % params.page_size : 0) + row) *
                                  kTileHeadDim +
                              piece * 8;
      const auto* k = static_cast<const __nv_bfloat16*>(params.k_cache) + at;
      const auto* v = static_cast<const __nv_bfloat16*>(params.v_cache) + at;
#pragma unroll
      for (int j = 0; j < kSegmentKeys; j += kPassRows) {
        const bool is_there = key + row + j >= tile.begin && key + row + j < tile.end;
        const auto to = static_cast<std::uint32_t>((half + j) * 128);
        cp_async_cg_16(k_to + to, k + j * kTileHeadDim, is_there ? 16U : 0U);
        cp_async_cg_16(v_to + to, v + j * kTileHeadDim, is_there ? 16U : 0U);
      }
    }
    cp_async_commit_group();
    fill.next();
    if (++waiting > Config::kLag) {
      cp_async_wait_group<Config::kLag>();
      announce_oldest();
    }
  }

  // Codes become bf16 in registers on their way: nothing stays under way when this returns.
  __device__ __forceinline__ void load_codes(const PrefillTile& tile, int first) {
    constexpr int kPieces = kSegmentKeys / kPassRows;
    mbarrier_wait(&shared.empty[fill.index], fill.parity ^ 1U);
#pragma unroll
    for (int half = 0; half < Config::kKeys; half += kSegmentKeys) {
      const int key = first + half;
      const bool is_seen = key < tile.end && key + kSegmentKeys > tile.begin;
      const std::int64_t page =
          is_seen ? tile.sequence.pages[key / params.page_size - tile.sequence.first_page] : 0;
      const std::int64_t at = (page * params.num_kv_heads + tile.kv_head) * params.page_size +
                              (is_seen ? key % params.page_size : 0) + row;
      const CacheRows<typename Config::Kv> k(params.k_cache, params.k_scales, at);
      const CacheRows<typename Config::Kv> v(params.v_cache, params.v_scales, at);
      uint4 keys[kPieces];
      uint4 values[kPieces];
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const int there = key + row + i * kPassRows;
        const bool is_there = there >= tile.begin && there < tile.end;
        keys[i] = is_there ? k.load(i * kPassRows, piece * 8) : make_uint4(0, 0, 0, 0);
        values[i] = is_there ? v.load(i * kPassRows, piece * 8) : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const std::uint32_t to = place + static_cast<std::uint32_t>(half + i * kPassRows) * 128U;
        *reinterpret_cast<uint4*>(shared.k[fill.index] + to) = keys[i];
        *reinterpret_cast<uint4*>(shared.v[fill.index] + to) = values[i];
      }
    }
    cp_async_commit_group();  // queries before them
    cp_async_wait_group<0>();
    fill.next();
    ++waiting;
    announce_oldest();
  }

  __device__ __forceinline__ void run(const PrefillTiles<Config>& tiles) {
    for (int round = 0; tiles.index(round) < tiles.count(); ++round) {
      const PrefillTile tile = tiles.at(tiles.index(round));
      load_queries(tile);
      for (int step = 0; step < tile.num_steps; ++step) {
        const int first = (tile.first_step + step) * Config::kKeys;
        if constexpr (Config::kHasCodes) {
          load_codes(tile, first);
        } else {
          load_step(tile, first);
        }
      }
    }
    announce_all();
  }
};

}  // namespace nibble::kernels::device
