// The router: which experts compute.
//
// It needs no round of its own. Its product is linear in the residual but for the norm's factor, so
// each block multiplies the rows that it has just computed with its columns of the router, adds
// their squares, and every block sums the parts: logit = factor * sum + bias.
#pragma once

#include "kernels/common/element.cuh"
#include "kernels/common/ptx_cp_async.cuh"
#include "kernels/decode/device/decode_params.cuh"

namespace nibble::kernels::device {

__device__ __forceinline__ float4 as_floats(const uint4& words) {
  return make_float4(__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
                     __uint_as_float(words.w));
}

__device__ __forceinline__ float norm_factor(float squares, int hidden, float eps) {
  return 1.0F / sqrtf(squares / static_cast<float>(hidden) + eps);
}

// This block's columns of the router into shared memory, where they are waited for by all.
__device__ __forceinline__ void ask_router_columns(const DecodeLayer& layer, DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  const int first = shared.own_rows.begin / 2;
  const int words = (shared.own_rows.end + 1) / 2 - first;
  const auto* from = reinterpret_cast<const std::uint32_t*>(layer.router) + first;
  // Sixteen threads an expert, a word each.
  const int word = thread_index() % 16;
  for (int expert = thread_index() / 16; expert < sizes.num_experts;
       expert += DecodeConfig::kMultiplyThreads / 16) {
    if (word < words) {
      cp_async_ca_4(shared_address(&shared.products.router[expert][word]),
                    from + std::int64_t{expert} * (sizes.hidden / 2) + word);
    }
  }
  cp_async_commit_group();
}

// Parts of the router's sums, and of the sum of squares, from shared.own and own_normed. Threads of
// one expert take turns at columns.
__device__ __forceinline__ void tell_router(int index, int count, const DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  const int thread = thread_index();
  int threads = 32;  // of an expert
  while (threads * sizes.num_experts > DecodeConfig::kMultiplyThreads) {
    threads /= 2;
  }
  const int expert = thread / threads;
  const int first = shared.own_rows.begin % 2;
  float sum = 0.0F;
  if (expert < sizes.num_experts) {
    const auto* columns =
        reinterpret_cast<const __nv_bfloat16*>(shared.products.router[expert]) + first;
    for (int column = thread % threads; column < count; column += threads) {
      sum = fmaf(__bfloat162float(columns[column]), shared.products.own_normed[column], sum);
    }
  }
  for (int step = threads / 2; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  }
  const int part_words = sizes.part_words();
  std::uint32_t* to = shared.words(index, shared.exchange.router) + static_cast<int>(blockIdx.x);
  // What rounds a row of parts up to whole pieces.
  const int padding =
      static_cast<int>(blockIdx.x) == sizes.num_blocks - 1 ? part_words - sizes.num_blocks : 0;
  if (expert < sizes.num_experts && thread % threads == 0) {
    std::uint32_t* const at = to + std::int64_t{expert} * part_words;
    tell(at, sum);
    for (int i = 1; i <= padding; ++i) {
      tell(at + i, 0.0F);
    }
  }
  if (thread / 32 == DecodeConfig::kWarps - 1) {
    const float own = thread % 32 < count ? shared.products.own[thread % 32] : 0.0F;
    const float squares = warp_sum(own * own);
    if (thread % 32 == 0) {
      std::uint32_t* const at = to + std::int64_t{sizes.num_experts} * part_words;
      tell(at, squares);
      for (int i = 1; i <= padding; ++i) {
        tell(at + i, 0.0F);
      }
    }
  }
}

// Sums of four parts each into the memory of the product's input and rows, which is free, then of
// all parts into shared.logits.
struct RouterParts {
  static constexpr int kPieces = (DecodeConfig::kMaxExperts + 1) * (DecodeConfig::kMaxBlocks / 4);
  static constexpr int kAtOnce = 5;  // twice that is enough for 128 experts and 132 blocks
  static_assert(kPieces * 4 <= static_cast<int>(sizeof(DecodeProducts)));

  __device__ __forceinline__ void bring_sums(int index, DecodeShared& shared) {
    const DecodeSizes& sizes = shared.sizes();
    const int pieces_of_expert = sizes.part_words() / 4;
    const int pieces = (sizes.num_experts + 1) * pieces_of_expert;
    const int thread = thread_index();
    const std::uint32_t* from = shared.words(index, shared.exchange.router);
    auto* const sums = reinterpret_cast<float*>(&shared.products);
#pragma unroll 1
    for (int first = thread; first < pieces; first += kAtOnce * DecodeConfig::kMultiplyThreads) {
      uint4 words[kAtOnce];
      const auto piece = [&](int i) { return first + i * DecodeConfig::kMultiplyThreads; };
      bring(
          words, shared, [&](int i) { return piece(i) < pieces; },
          [&](int i) { return from + 4 * piece(i); });
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (piece(i) < pieces) {
          const float4 part = as_floats(words[i]);
          sums[piece(i)] = (part.x + part.y) + (part.z + part.w);
        }
      }
    }
    sync_multiplying();
    if (thread <= sizes.num_experts) {
      float sum = 0.0F;
#pragma unroll 4
      for (int i = 0; i < pieces_of_expert; ++i) {
        sum += sums[thread * pieces_of_expert + i];
      }
      shared.logits[thread] = sum;
    }
    sync_multiplying();
  }
};

// Numbers that stand in the order of the floats, none of which is a NaN or -0.
__device__ __forceinline__ std::uint32_t rank_of(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  return bits ^ (bits >> 31U != 0 ? 0xFFFFFFFFU : 0x80000000U);
}
__device__ __forceinline__ float float_of(std::uint32_t rank) {
  return __uint_as_float(rank ^ (rank >> 31U != 0 ? 0x80000000U : 0xFFFFFFFFU));
}

// By one warp.
struct Router {
  static constexpr int kOfLane = DecodeConfig::kMaxExperts / 32;
  float bias[kOfLane] = {};

  __device__ __forceinline__ Router(const DecodeLayer& layer, int num_experts) {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      if (lane_index() + 32 * i < num_experts) {
        bias[i] = __ldg(layer.router_bias + lane_index() + 32 * i);
      }
    }
  }

  __device__ __forceinline__ void choose(int index, DecodeShared& shared) const {
    const DecodeSizes& sizes = shared.sizes();
    const int lane = lane_index();
    const float infinity = __int_as_float(0x7F800000);
    const auto expert_of = [&](int i) { return lane + 32 * i; };
    const float factor =
        norm_factor(shared.logits[sizes.num_experts], sizes.hidden, shared.args.eps);
    std::uint32_t ranks[kOfLane];
    bool is_bad = false;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const bool is_there = expert_of(i) < sizes.num_experts;
      const float logit = is_there ? fmaf(shared.logits[expert_of(i)], factor, bias[i]) : 0.0F;
      is_bad = is_bad || (is_there && (isnan(logit) || logit == infinity));
      ranks[i] = is_there ? rank_of(isnan(logit) ? -infinity : logit + 0.0F) : 0U;
    }
    float chosen[DecodeConfig::kMaxTopK];
#pragma unroll
    for (int slot = 0; slot < DecodeConfig::kMaxTopK; ++slot) {
      std::uint32_t best = ranks[0];
#pragma unroll
      for (int i = 1; i < kOfLane; ++i) {
        best = max(best, ranks[i]);
      }
      best = __reduce_max_sync(0xFFFFFFFFU, best);
      std::uint32_t mine = 0xFFFFFFFFU;
#pragma unroll
      for (int i = kOfLane - 1; i >= 0; --i) {
        mine = ranks[i] == best ? static_cast<std::uint32_t>(lane + 32 * i) : mine;
      }
      const std::uint32_t id = __reduce_min_sync(0xFFFFFFFFU, mine);
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        ranks[i] = id == static_cast<std::uint32_t>(lane + 32 * i) ? 0U : ranks[i];
      }
      chosen[slot] = float_of(best);
      if (lane == 0 && slot < sizes.top_k) {
        shared.ids[slot] = static_cast<std::int32_t>(id);
      }
    }
    if (lane == 0) {
      mbarrier_arrive(&shared.routed);
      shared.factor = factor;
    }
    float total = 0.0F;
#pragma unroll
    for (int slot = 0; slot < DecodeConfig::kMaxTopK; ++slot) {
      total += slot < sizes.top_k ? expf(chosen[slot] - chosen[0]) : 0.0F;
    }
#pragma unroll
    for (int slot = 0; slot < DecodeConfig::kMaxTopK; ++slot) {
      if (lane == slot) {
        shared.weights[slot] = expf(chosen[slot] - chosen[0]) / total;
      }
    }
    if (blockIdx.x == 0 && (is_bad || chosen[0] == -infinity)) {
      shared.args.bad_rows[index] = 0;
    }
  }
};

}  // namespace nibble::kernels::device
