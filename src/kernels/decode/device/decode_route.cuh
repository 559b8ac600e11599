// The residual between the products: norms, the router, and who computes which experts.
//
// The router needs no round of its own. Its product is linear in the residual but for the norm's
// factor, so each block multiplies the rows that it has just computed with its columns of the
// router, adds their squares, and every block sums the parts: logit = factor * sum + bias.
#pragma once

#include "kernels/decode/device/decode_attention.cuh"
#include "kernels/decode/device/decode_dense.cuh"

namespace nibble::kernels::device {

// Four columns of the residual at a time: a thread has two such quads.
inline constexpr int kQuadsOfThread = 2;
static_assert(kQuadsOfThread * 4 * DecodeConfig::kMultiplyThreads >= DecodeConfig::kMaxHidden);

__device__ __forceinline__ int quad_of(int thread, int i) {
  return thread + i * DecodeConfig::kMultiplyThreads;
}

__device__ __forceinline__ float4 as_floats(const uint4& words) {
  return make_float4(__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
                     __uint_as_float(words.w));
}

__device__ __forceinline__ float norm_factor(float squares, int hidden, float eps) {
  return 1.0F / sqrtf(squares / static_cast<float>(hidden) + eps);
}

// A norm's weights of this thread's quads, asked for ahead.
struct NormWeights {
  float4 quads[kQuadsOfThread];
  __device__ __forceinline__ NormWeights(const float* weights, int hidden, int thread) {
#pragma unroll
    for (int i = 0; i < kQuadsOfThread; ++i) {
      const int quad = quad_of(thread, i);
      quads[i] = quad < hidden / 4 ? __ldg(reinterpret_cast<const float4*>(weights) + quad)
                                   : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    }
  }
};

__device__ __forceinline__ void store_normed(DecodeShared& shared, int quad, const float4& r,
                                             const float4& weight, float factor) {
  auto* to = reinterpret_cast<uint2*>(shared.products.x);
  to[quad] = make_uint2(cvt_bf16x2(r.x * factor * weight.x, r.y * factor * weight.y),
                        cvt_bf16x2(r.z * factor * weight.z, r.w * factor * weight.w));
}

// The token's row of the embedding.
__device__ __forceinline__ void embed(DecodeShared& shared) {
  const int hidden = shared.sizes().hidden;
  const int thread = thread_index();
  const auto* row = reinterpret_cast<const uint2*>(shared.args.embedding +
                                                   std::int64_t{*shared.args.token_id} * hidden);
#pragma unroll
  for (int i = 0; i < kQuadsOfThread; ++i) {
    const int quad = quad_of(thread, i);
    if (quad < hidden / 4) {
      const uint2 words = row[quad];
      reinterpret_cast<float4*>(shared.residual)[quad] =
          make_float4(low_bf16(words.x), high_bf16(words.x), low_bf16(words.y), high_bf16(words.y));
    }
  }
}

// Adds layer `index`'s experts to this thread's quads: slots ascending.
__device__ __forceinline__ void add_experts(int index, int thread, float4 (&quads)[kQuadsOfThread],
                                            DecodeShared& shared) {
  const int hidden = shared.sizes().hidden;
  const int top_k = shared.sizes().top_k;
  const std::uint32_t* from = shared.words(index, shared.exchange.y);
  constexpr int kSlots = DecodeConfig::kMaxTopK;
  uint4 y[kQuadsOfThread * kSlots];
  bring(
      y, shared,
      [&](int i) { return quad_of(thread, i / kSlots) < hidden / 4 && i % kSlots < top_k; },
      [&](int i) { return from + i % kSlots * hidden + 4 * quad_of(thread, i / kSlots); });
#pragma unroll
  for (int i = 0; i < kQuadsOfThread * kSlots; ++i) {
    const float weight = i % kSlots < top_k ? shared.weights[i % kSlots] : 0.0F;
    const float4 one = as_floats(y[i]);
    float4& quad = quads[i / kSlots];
    quad.x = fmaf(weight, one.x, quad.x);
    quad.y = fmaf(weight, one.y, quad.y);
    quad.z = fmaf(weight, one.z, quad.z);
    quad.w = fmaf(weight, one.w, quad.w);
  }
}

// The residual after layer `last` (-1: the embedding), and its norm as the next product's input.
__device__ __forceinline__ void begin_layer(int last, const float* norm_weights,
                                            DecodeShared& shared) {
  const int hidden = shared.sizes().hidden;
  const int thread = thread_index();
  const NormWeights weights(norm_weights, hidden, thread);
  float4 quads[kQuadsOfThread];
#pragma unroll
  for (int i = 0; i < kQuadsOfThread; ++i) {
    quads[i] = quad_of(thread, i) < hidden / 4
                   ? reinterpret_cast<const float4*>(shared.residual)[quad_of(thread, i)]
                   : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  }
  if (last >= 0) {
    await_count(shared, last, DecodeCount::kDown, shared.sizes().num_blocks);
    add_experts(last, thread, quads, shared);
  }
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < kQuadsOfThread; ++i) {
    const float4& r = quads[i];
    squares += r.x * r.x + r.y * r.y + r.z * r.z + r.w * r.w;
    if (quad_of(thread, i) < hidden / 4) {
      reinterpret_cast<float4*>(shared.residual)[quad_of(thread, i)] = r;
    }
  }
  squares = warp_sum(squares);
  if (thread % 32 == 0) {
    shared.squares[thread / 32] = squares;
  }
  sync_multiplying();
  float total = 0.0F;
#pragma unroll
  for (int warp = 0; warp < DecodeConfig::kWarps; ++warp) {
    total += shared.squares[warp];
  }
  const float factor = norm_factor(total, hidden, shared.args.eps);
#pragma unroll
  for (int i = 0; i < kQuadsOfThread; ++i) {
    if (quad_of(thread, i) < hidden / 4) {
      store_normed(shared, quad_of(thread, i), quads[i], weights.quads[i], factor);
    }
  }
  sync_multiplying();
}

// A block's columns of the router, asked for ahead: threads of one expert take turns at columns.
struct RouterColumns {
  static constexpr int kMost = DecodeConfig::kMaxOwnRows / 2;
  int thread = 0;
  int expert = 0;
  int threads = 32;  // of an expert: a power of two, 2 to 32
  __nv_bfloat16 weights[kMost] = {};

  __device__ __forceinline__ void load(const DecodeShared& shared, const DecodeLayer& layer) {
    const DecodeSizes& sizes = shared.sizes();
    thread = thread_index();
    threads = 32;
    while (threads * sizes.num_experts > DecodeConfig::kMultiplyThreads) {
      threads /= 2;
    }
    expert = thread / threads;
    const auto* from = reinterpret_cast<const __nv_bfloat16*>(layer.router) +
                       std::int64_t{expert} * sizes.hidden + shared.own_rows.begin;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int column = thread % threads + i * threads;
      if (expert < sizes.num_experts && column < shared.own_rows.size()) {
        weights[i] = __ldg(from + column);
      }
    }
  }
};

// Parts of the router's sums, and of the sum of squares, from shared.own and own_normed.
__device__ __forceinline__ void tell_router(int index, const RouterColumns& columns, int count,
                                            const DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  const int thread = columns.thread;
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < RouterColumns::kMost; ++i) {
    const int column = thread % columns.threads + i * columns.threads;
    if (column < count) {
      sum = fmaf(__bfloat162float(columns.weights[i]), shared.own_normed[column], sum);
    }
  }
  for (int step = columns.threads / 2; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  }
  std::uint32_t* to = shared.words(index, shared.exchange.router) + static_cast<int>(blockIdx.x);
  if (columns.expert < sizes.num_experts && thread % columns.threads == 0) {
    tell(to + std::int64_t{columns.expert} * sizes.num_blocks, sum);
  }
  if (thread / 32 == DecodeConfig::kWarps - 1) {
    const float own = thread % 32 < count ? shared.own[thread % 32] : 0.0F;
    const float squares = warp_sum(own * own);
    if (thread % 32 == 0) {
      tell(to + std::int64_t{sizes.num_experts} * sizes.num_blocks, squares);
    }
  }
}

// Sums the parts of all blocks into shared.logits: warps take turns at experts.
__device__ __forceinline__ void sum_router(int index, DecodeShared& shared) {
  const int num_experts = shared.sizes().num_experts;
  const int num_blocks = shared.sizes().num_blocks;
  const int thread = thread_index();
  const int lane = thread % 32;
  constexpr int kAtOnce = 3;  // of a warp: 45 in all, enough for 32 experts and the squares
  constexpr int kParts = DecodeConfig::kMaxBlocks / 32;
  const std::uint32_t* from = shared.words(index, shared.exchange.router) + lane;
#pragma unroll 1
  for (int first = thread / 32; first <= num_experts; first += kAtOnce * DecodeConfig::kWarps) {
    std::uint32_t parts[kAtOnce * kParts];
    const auto expert_of = [&](int i) { return first + i / kParts * DecodeConfig::kWarps; };
    bring(
        parts, shared,
        [&](int i) { return expert_of(i) <= num_experts && lane + 32 * (i % kParts) < num_blocks; },
        [&](int i) { return from + expert_of(i) * num_blocks + 32 * (i % kParts); });
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      float sum = 0.0F;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        sum += __uint_as_float(parts[i * kParts + part]);
      }
      sum = warp_sum(sum);
      if (lane == 0 && expert_of(i * kParts) <= num_experts) {
        shared.logits[expert_of(i * kParts)] = sum;
      }
    }
  }
}

// Experts by rank: a thread for each, which counts those that stand before it: of larger logit, or
// of the same and a smaller id. The first top_k are the token's.
__device__ __forceinline__ void rank_experts(float bias, float factor, int thread, int index,
                                             DecodeShared& shared) {
  const int num_experts = shared.sizes().num_experts;
  const float infinity = __int_as_float(0x7F800000);
  if (thread >= num_experts) {
    return;
  }
  const float logit = fmaf(shared.logits[thread], factor, bias);
  const bool is_bad = isnan(logit) || logit == infinity;
  if (is_bad && blockIdx.x == 0) {
    shared.args.bad_rows[index] = 0;
  }
  shared.logits[thread] = isnan(logit) ? -infinity : logit;
}

__device__ __forceinline__ void choose_experts(int thread, DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  if (thread >= sizes.num_experts) {
    return;
  }
  const float mine = shared.logits[thread];
  int rank = 0;
#pragma unroll 8
  for (int other = 0; other < sizes.num_experts; ++other) {
    const float value = shared.logits[other];
    rank += value > mine || (value == mine && other < thread) ? 1 : 0;
  }
  if (rank < sizes.top_k) {
    shared.ids[rank] = thread;
    shared.chosen[rank] = mine;
  }
}

// Softmax over the chosen, whose largest is the first.
__device__ __forceinline__ void weigh_experts(int thread, int index, DecodeShared& shared) {
  const int top_k = shared.sizes().top_k;
  if (thread >= top_k) {
    return;
  }
  const float largest = shared.chosen[0];
  float total = 0.0F;
  for (int slot = 0; slot < top_k; ++slot) {
    total += expf(shared.chosen[slot] - largest);
  }
  shared.weights[thread] = expf(shared.chosen[thread] - largest) / total;
  if (thread == 0 && blockIdx.x == 0 && largest == __int_as_float(0xFF800000)) {
    shared.args.bad_rows[index] = 0;
  }
}

// The attention's result as the output product's input.
__device__ __forceinline__ void bring_attention(int index, int num_told, DecodeShared& shared) {
  await_count(shared, index, DecodeCount::kAttention, num_told);
  const std::uint32_t* attention = shared.words(index, shared.exchange.attention);
  const int pieces = shared.sizes().q_width() / 8;
  const int thread = thread_index();
  uint4 x[2];  // covers kMaxDenseCols
  const auto piece = [&](int i) { return thread + i * DecodeConfig::kMultiplyThreads; };
  bring(
      x, shared, [&](int i) { return piece(i) < pieces; },
      [&](int i) { return attention + 4 * piece(i); });
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (piece(i) < pieces) {
      shared.products.x[piece(i)] = x[i];
    }
  }
  sync_multiplying();
  shared.mark(index, DecodeMark::kMixed);
}

// Chooses the experts and makes their input, the norm of the residual.
__device__ __forceinline__ void route(int index, DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  const DecodeLayer& layer = shared.layer(index);
  const int thread = thread_index();
  const float bias = thread < sizes.num_experts ? __ldg(layer.router_bias + thread) : 0.0F;
  const NormWeights weights(layer.mlp_norm, sizes.hidden, thread);
  await_count(shared, index, DecodeCount::kRouter, sizes.num_blocks);
  sum_router(index, shared);
  sync_multiplying();
  const float factor = norm_factor(shared.logits[sizes.num_experts], sizes.hidden, shared.args.eps);
  rank_experts(bias, factor, thread, index, shared);
  sync_multiplying();
  choose_experts(thread, shared);
  sync_multiplying();
  if (thread == 0) {
    mbarrier_arrive(&shared.routed);
  }
  weigh_experts(thread, index, shared);
  const std::uint32_t* residual = shared.words(index, shared.exchange.residual);
  uint4 words[kQuadsOfThread];
  bring(
      words, shared, [&](int i) { return quad_of(thread, i) < sizes.hidden / 4; },
      [&](int i) { return residual + 4 * quad_of(thread, i); });
#pragma unroll
  for (int i = 0; i < kQuadsOfThread; ++i) {
    const int quad = quad_of(thread, i);
    if (quad < sizes.hidden / 4) {
      const float4 r = as_floats(words[i]);
      reinterpret_cast<float4*>(shared.residual)[quad] = r;
      store_normed(shared, quad, r, weights.quads[i], factor);
    }
  }
  sync_multiplying();
  shared.mark(index, DecodeMark::kRouted);
}

}  // namespace nibble::kernels::device
