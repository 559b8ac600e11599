// Sequences of several rows, on Hopper's tensor cores.
//
// Persistent blocks walk tiles of queries (attention_prefill_tiles.cuh). Four warps load: a tile's
// queries, and its keys and values in steps of kKeys, with cp.async into a ring of swizzled shared
// memory (codes of e4m3 through registers, where they become bf16); keys that no query sees become
// zeros without being read. Three warpgroups multiply, 64 queries each against the same keys:
//
//   scores   queries (64 x 64) . keys^T (64 x kKeys): both from shared memory
//   values   weights (64 x kKeys) . values (kKeys x 64): the sums of the scores are already
//            fragments of the weights; values lie in rows of channels, as they are cached
//
// While the tensor cores multiply the values of one step, a warpgroup weighs the scores of the
// next; while one warpgroup weighs, the others multiply.
//
// Scores are kept in units of log 2. Weights are rounded to bf16 for the product; their sum is of
// the unrounded ones. Steps begin at multiples of kKeys, so a row's bits depend on its position
// alone.
#pragma once

#include "kernels/attention/device/attention_prefill_load.cuh"
#include "kernels/attention/device/attention_prefill_multiply.cuh"
#include "kernels/common/ptx_grid.cuh"

namespace nibble::kernels::device {

template <typename Config>
__device__ __forceinline__ void prepare(const AttentionParams& params, int num_sequences,
                                        int tokens_per_tile, PrefillShared<Config>& shared) {
  if (threadIdx.x < 32) {
    count_tiles(params, num_sequences, tokens_per_tile, shared.counts);
  } else if (threadIdx.x == 32) {
    for (int i = 0; i < Config::kStages; ++i) {
      mbarrier_init(&shared.full[i], Config::kLoadWarps * 32);
      mbarrier_init(&shared.empty[i], Config::kMultiplyWarps);
    }
    for (std::uint64_t& barrier : shared.q_empty) {
      mbarrier_init(&barrier, Config::kMultiplyThreads);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
}

// Sequences [0, num_sequences) of params, at most kMostPrefillSequences.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    attention_prefill(const __grid_constant__ AttentionParams params, int num_sequences) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<PrefillShared<Config>*>(raw);
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int tokens_per_tile = Config::kTileQueries * params.num_kv_heads / params.num_heads;
  prepare<Config>(params, num_sequences, tokens_per_tile, shared);
  const PrefillTiles<Config> tiles{params, shared.counts, num_sequences, tokens_per_tile};
  if (threadIdx.x < Config::kMultiplyThreads) {
    setmaxnreg_inc<Config::kMultiplyRegisters>();
    PrefillMultiplier<Config>{params, shared}.run(tiles);
  } else {
    setmaxnreg_dec<Config::kLoadRegisters>();
    PrefillLoader<Config>(params, shared).run(tiles);
  }
}

}  // namespace nibble::kernels::device
