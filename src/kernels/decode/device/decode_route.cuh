// The residual between the products: norms, and what the chosen experts are given.
#pragma once

#include "kernels/decode/device/decode_attention.cuh"
#include "kernels/decode/device/decode_dense.cuh"
#include "kernels/decode/device/decode_router.cuh"

namespace nibble::kernels::device {

// Four columns of the residual at a time: a thread has two such quads.
inline constexpr int kQuadsOfThread = 2;
static_assert(kQuadsOfThread * 4 * DecodeConfig::kMultiplyThreads >= DecodeConfig::kMaxHidden);

__device__ __forceinline__ int quad_of(int thread, int i) {
  return thread + i * DecodeConfig::kMultiplyThreads;
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

// The attention's result as the output product's input.
__device__ __forceinline__ void bring_attention(int index, int num_told, DecodeShared& shared) {
  ask_router_columns(shared.layer(index), shared);
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

// Chooses the experts and makes their input, the norm of the residual. The residual is asked for
// before the producer may go on: behind a ring full of weights it would come late.
__device__ __forceinline__ void route(int index, DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  const DecodeLayer& layer = shared.layer(index);
  const int thread = thread_index();
  const Router router(layer, sizes.num_experts);
  const NormWeights weights(layer.mlp_norm, sizes.hidden, thread);
  await_count(shared, index, DecodeCount::kRouter, sizes.num_blocks);
  const std::uint32_t* residual = shared.words(index, shared.exchange.residual);
  const auto place = [&](int i) { return residual + 4 * quad_of(thread, i); };
  uint4 words[kQuadsOfThread];
  ask_all(
      words, [&](int i) { return quad_of(thread, i) < sizes.hidden / 4; }, place);
  RouterParts().bring_sums(index, shared);
  settle(words, shared, place);
  if (warp_index() == 0) {
    router.choose(index, shared);
  }
  sync_multiplying();
  const float factor = shared.factor;
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
