// The multiplying warpgroups of attention_prefill.cuh.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/attention/device/attention_prefill_load.cuh"
#include "kernels/common/ptx_wgmma_shared.cuh"

namespace nibble::kernels::device {

// One warpgroup's 64 queries of a tile. Lane (g, t) of a warp has queries g and g + 8 of its
// sixteen; of the scores keys 8j + 2t and the next, of the sums channels 8j + 2t and the next.
template <typename Config>
struct PrefillQueries {
  int position[2];  // of the two queries; below 0: not there
  float factor;     // of scores
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};  // of the lane's keys
  float sums[kTileHeadDim / 2];
  std::uint32_t weights[Config::kKeys / 16][4];  // fragments for 16 keys each

  __device__ __forceinline__ PrefillQueries(const AttentionParams& params, const PrefillTile& tile)
      : factor(params.scale * kLog2E) {
    const int group = params.num_heads / params.num_kv_heads;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query() + 8 * half;
      const int token = tile.token + query / group;
      position[half] = token < tile.sequence.num_rows ? tile.sequence.first_position + token : -1;
    }
#pragma unroll
    for (float& sum : sums) {
      sum = 0.0F;
    }
  }

  // Query g of this lane, of the tile.
  static __device__ __forceinline__ int first_query() {
    return static_cast<int>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4);
  }

  // Keys that a query does not see score -inf.
  __device__ __forceinline__ void mask(const AttentionParams& params, int step_key,
                                       float (&scores)[Config::kKeys / 2]) const {
    const int lane_key = step_key + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int last = position[half] - lane_key;
      const int first = position[half] - params.window + 1 - lane_key;
#pragma unroll
      for (int j = 0; j < Config::kKeys / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = 8 * j + i;
          float& score = scores[4 * j + 2 * half + i];
          score = key <= last && (!Config::kIsWindow || key >= first) ? score : -INFINITY;
        }
      }
    }
  }

  // Scores to weights; largest and totals move along. `correction`: of the sums so far.
  __device__ __forceinline__ void weigh(float (&scores)[Config::kKeys / 2],
                                        float (&correction)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most[2] = {-INFINITY, -INFINITY};  // fmaxf drops a NaN, whose weight is NaN anyway
#pragma unroll
      for (int j = 0; j < Config::kKeys / 8; ++j) {
        most[0] = fmaxf(most[0], scores[4 * j + 2 * half]);
        most[1] = fmaxf(most[1], scores[4 * j + 2 * half + 1]);
      }
      most[0] = fmaxf(most[0], most[1]);
      most[0] = fmaxf(most[0], __shfl_xor_sync(0xFFFFFFFFU, most[0], 1));
      most[0] = fmaxf(most[0], __shfl_xor_sync(0xFFFFFFFFU, most[0], 2));
      const float now = fmaxf(largest[half], most[0] * factor);
      const float shift = now == -INFINITY ? 0.0F : now;  // nothing seen yet
      correction[half] = ex2_approx(largest[half] - shift);
      largest[half] = now;
      float sum[2] = {};
#pragma unroll
      for (int j = 0; j < Config::kKeys / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * j + 2 * half + i];
          score = ex2_approx(fmaf(score, factor, -shift));
          sum[i] += score;
        }
      }
      total[half] = fmaf(total[half], correction[half], sum[0] + sum[1]);
    }
  }

  // Weights as operands of the next product.
  __device__ __forceinline__ void round_weights(const float (&scores)[Config::kKeys / 2]) {
#pragma unroll
    for (int s = 0; s < Config::kKeys / 16; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[s][i] = cvt_bf16x2(scores[8 * s + 2 * i], scores[8 * s + 2 * i + 1]);
      }
    }
  }

  __device__ __forceinline__ void correct(const float (&correction)[2]) {
#pragma unroll
    for (int j = 0; j < kTileHeadDim / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[4 * j + i] *= correction[i / 2];
      }
    }
  }
};

// The steps of one tile for one warpgroup. No branch lies between a product and the wait for it.
template <typename Config>
struct PrefillMultiplier {
  const AttentionParams& params;
  PrefillShared<Config>& shared;
  RingSlot<Config::kStages> slot;
  int previous = 0;  // stage whose values are not multiplied yet
  RingSlot<2> queries;

  __device__ __forceinline__ void start_scores(std::uint64_t q,
                                               float (&scores)[Config::kKeys / 2]) {
    const std::uint64_t k = wgmma_descriptor(shared_address(shared.k[slot.index]));
    mbarrier_wait(&shared.full[slot.index], slot.parity);
    wgmma_fence();
    WgmmaShared<Config::kKeys>::first(scores, q, k);
#pragma unroll
    for (unsigned s = 1; s < kTileHeadDim / 16; ++s) {
      WgmmaShared<Config::kKeys>::add(scores, q + 2 * s, k + 2 * s);
    }
    wgmma_commit_group();
  }

  __device__ __forceinline__ void start_values(PrefillQueries<Config>& of) {
    const std::uint64_t v = wgmma_descriptor(shared_address(shared.v[previous]));
    wgmma_fence();
#pragma unroll
    for (unsigned s = 0; s < Config::kKeys / 16; ++s) {
      wgmma_rows_n64(of.sums, of.weights[s], v + 128 * s);
    }
    wgmma_commit_group();
  }

  __device__ __forceinline__ void finish_values(PrefillQueries<Config>& of) {
    wgmma_wait_group<0>();
    hold_registers(of.sums);
    hold_registers(of.weights);
    if (threadIdx.x % 32 == 0) {
      mbarrier_arrive(&shared.empty[previous]);
    }
  }

  // Scores of the next step beside the values of the one before.
  template <bool kMasks>
  __device__ __forceinline__ void step(std::uint64_t q, int key, PrefillQueries<Config>& of) {
    float scores[Config::kKeys / 2];
    float correction[2];
    start_scores(q, scores);
    start_values(of);
    wgmma_wait_group<1>();
    hold_registers(scores);
    if constexpr (kMasks) {
      of.mask(params, key, scores);
    }
    of.weigh(scores, correction);
    finish_after(of.total[0] + of.total[1]);
    finish_values(of);
    of.correct(correction);
    of.round_weights(scores);
    previous = slot.index;
    slot.next();
  }

  __device__ __forceinline__ void first_step(std::uint64_t q, int key, PrefillQueries<Config>& of) {
    float scores[Config::kKeys / 2];
    float correction[2];
    start_scores(q, scores);
    wgmma_wait_group<0>();
    hold_registers(scores);
    of.mask(params, key, scores);
    of.weigh(scores, correction);
    of.round_weights(scores);
    previous = slot.index;
    slot.next();
  }

  __device__ __forceinline__ void attend(const PrefillTile& tile, PrefillQueries<Config>& of) {
    const int warpgroup = static_cast<int>(threadIdx.x / 128);
    const std::uint64_t q = wgmma_descriptor(shared_address(shared.q[queries.index]) +
                                             warpgroup * Config::kGroupQueries * 128);
    const int group = params.num_heads / params.num_kv_heads;
    const int first_position =
        tile.sequence.first_position + tile.token + warpgroup * Config::kGroupQueries / group;
    // Steps all of whose keys every query sees, from the first on: for queries that are not there
    // anything goes.
    const int whole =
        Config::kIsWindow
            ? 0
            : min((first_position + 1) / Config::kKeys - tile.first_step, tile.num_steps);
    int key = tile.first_step * Config::kKeys;
    first_step(q, key, of);
    int step_index = 1;
    for (; step_index < whole; ++step_index) {
      step<false>(q, 0, of);
    }
    key += step_index * Config::kKeys;
    for (; step_index < tile.num_steps; ++step_index, key += Config::kKeys) {
      step<true>(q, key, of);
    }
    start_values(of);
    finish_values(of);
  }

  // Results through the place of the queries, so that rows leave in pieces of 16 bytes.
  __device__ __forceinline__ void store(const PrefillTile& tile, PrefillQueries<Config>& of) {
    const int warpgroup = static_cast<int>(threadIdx.x / 128);
    bar_sync(1 + warpgroup, 128);  // all have read their queries
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int group = params.num_heads / params.num_kv_heads;
    unsigned char* const rows = shared.q[queries.index] + threadIdx.x / 32 * 16 * 128;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = of.total[half];
      total += __shfl_xor_sync(0xFFFFFFFFU, total, 1);
      total += __shfl_xor_sync(0xFFFFFFFFU, total, 2);
      const int query = of.first_query() + 8 * half;
      const int head = tile.kv_head * group + query % group;
      const float factor = final_factor(params.sinks, head, of.largest[half], total);
      const int row = lane / 4 + 8 * half;
#pragma unroll
      for (int j = 0; j < kTileHeadDim / 8; ++j) {
        *reinterpret_cast<std::uint32_t*>(rows + row * 128 + ((j ^ row % 8) * 16) + lane % 4 * 4) =
            cvt_bf16x2(of.sums[4 * j + 2 * half] * factor, of.sums[4 * j + 2 * half + 1] * factor);
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 8 + 4 * i;
      const int query = static_cast<int>(threadIdx.x / 32) * 16 + row;
      const int token = tile.token + query / group;
      const int head = tile.kv_head * group + query % group;
      const uint4 words =
          *reinterpret_cast<const uint4*>(rows + row * 128 + ((lane % 8 ^ row % 8) * 16));
      if (token < tile.sequence.num_rows) {
        const std::int64_t at =
            (std::int64_t{tile.sequence.first_row + token} * params.num_heads + head) *
                kTileHeadDim +
            lane % 8 * 8;
        *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(params.out) + at) = words;
      }
    }
    mbarrier_arrive(&shared.q_empty[queries.index]);
    queries.next();
  }

  __device__ __forceinline__ void run(const PrefillTiles<Config>& tiles) {
    for (int round = 0; tiles.index(round) < tiles.count(); ++round) {
      const PrefillTile tile = tiles.at(tiles.index(round));
      PrefillQueries<Config> of(params, tile);
      attend(tile, of);
      store(tile, of);
    }
  }
};

}  // namespace nibble::kernels::device
