// The whole step: every block walks through all layers; one warp produces, fifteen multiply.
#pragma once

#include "kernels/decode/device/decode_experts.cuh"
#include "kernels/decode/device/decode_ring.cuh"
#include "kernels/decode/device/decode_route.cuh"

namespace nibble::kernels::device {

// This block's part of `count` things.
__device__ __forceinline__ DecodeRange share_of(const DecodeParams& params, int count) {
  return decode_share(count, static_cast<int>(blockIdx.x), params.args.sizes.num_blocks);
}

__device__ __forceinline__ void set_up_work(const DecodeParams& params, DecodeShared& shared) {
  const DecodeSizes& sizes = params.args.sizes;
  shared.args = params.args;
  shared.exchange = params.exchange;
  shared.qkv_rows = share_of(params, sizes.qkv_width());
  shared.own_rows = share_of(params, sizes.hidden);
  shared.gate_up_units = share_of(params, sizes.top_k * sizes.gate_up_bands());
  shared.down_units = share_of(params, sizes.top_k * sizes.down_bands());
  shared.vocab_rows = share_of(params, sizes.vocab);
  shared.gate_up_slot = shared.gate_up_units.begin / sizes.gate_up_bands();
  shared.down_slot = shared.down_units.begin / sizes.down_bands();
  shared.group = sizes.group();
  shared.max_splits = sizes.max_splits();
  shared.kv_head = static_cast<int>(blockIdx.x) % sizes.num_kv_heads;
  shared.split = static_cast<int>(blockIdx.x) / sizes.num_kv_heads;
  shared.page_shift = 31 - __clz(sizes.page_size);
}

// Word by word, by the last warps.
__device__ __forceinline__ void bring_layer(const DecodeParams& params, int index,
                                            DecodeShared& shared) {
  constexpr int kWords = sizeof(DecodeLayer) / 4;
  const int word = DecodeConfig::kMultiplyThreads - 1 - thread_index();
  if (index < params.args.sizes.num_layers && word >= 0 && word < kWords) {
    reinterpret_cast<std::uint32_t*>(&shared.layers[index & 1])[word] =
        reinterpret_cast<const std::uint32_t*>(&params.layers[index])[word];
  }
}

__device__ __forceinline__ void set_up(const DecodeParams& params, DecodeShared& shared) {
  if (threadIdx.x == 0) {
    set_up_work(params, shared);
    for (int i = 0; i < DecodeConfig::kSlots; ++i) {
      mbarrier_init(&shared.full[i], 1);
      mbarrier_init(&shared.empty[i], DecodeConfig::kSlotArrivals);
    }
    mbarrier_init(&shared.routed, 1);
    fence_mbarrier_init();
    shared.is_lost = 0;
    shared.began_ns = global_timer();
  }
  if (threadIdx.x < kDecodeCaches && params.args.caches[threadIdx.x].sequence != nullptr) {
    const DecodeCache& cache = params.args.caches[threadIdx.x];
    shared.caches[threadIdx.x] = {cache.sequence->pages, cache.sequence->first_page, *cache.slot};
  }
  if (threadIdx.x < DecodeConfig::kHeadDim / 2) {
    // As rope_store: the exact product, whatever the compiler fuses.
    const float angle =
        __fmul_rn(static_cast<float>(*params.args.position), params.args.inv_freq[threadIdx.x]);
    float sine = 0.0F;
    float cosine = 0.0F;
    sincosf(angle, &sine, &cosine);
    shared.sine[threadIdx.x] = sine * params.args.concentration;
    shared.cosine[threadIdx.x] = cosine * params.args.concentration;
  }
  bring_layer(params, 0, shared);
  __syncthreads();
}

// The three dense products, which share their code.
enum class DenseProduct { kQkv, kOutput, kHead };

__device__ __forceinline__ DecodeRange dense_rows(DenseProduct product,
                                                  const DecodeShared& shared) {
  return product == DenseProduct::kQkv      ? shared.qkv_rows
         : product == DenseProduct::kOutput ? shared.own_rows
                                            : shared.vocab_rows;
}

__device__ __forceinline__ void multiply_dense(DenseProduct product, int index,
                                               DecodeShared& shared, RingPlace& place) {
  const bool is_output = product == DenseProduct::kOutput;
  const DecodeRange rows = dense_rows(product, shared);
  const DecodeLayer& layer = shared.layer(index);
  const int thread = thread_index();
  if (product != DenseProduct::kHead && thread < rows.size()) {
    cp_async_ca_4(shared_address(&shared.products.row_bias[thread]),
                  (is_output ? layer.o_bias : layer.qkv_bias) + rows.begin + thread);
    if (is_output) {
      cp_async_ca_4(shared_address(&shared.products.row_norm[thread]),
                    layer.mlp_norm + rows.begin + thread);
    }
  }
  cp_async_commit_group();
  std::uint32_t* to =
      product == DenseProduct::kHead
          ? reinterpret_cast<std::uint32_t*>(shared.args.logits)
          : shared.words(index, is_output ? shared.exchange.residual : shared.exchange.qkv);
  multiply_rows(
      is_output ? shared.sizes().q_width() : shared.sizes().hidden, rows, shared, place,
      [&](int row_of_group, int row, float sum) {
        float value =
            product == DenseProduct::kHead ? sum : sum + shared.products.row_bias[row_of_group];
        if (is_output) {
          value += shared.residual[row];
          shared.products.own[row_of_group] = value;
          shared.products.own_normed[row_of_group] = value * shared.products.row_norm[row_of_group];
        }
        tell(to + row, value);
      });
  cp_async_wait_group<0>();  // a block without rows has not waited
  sync_multiplying();
  if (is_output) {
    shared.mark(index, DecodeMark::kOutput);
    tell_router(index, rows.size(), shared);
    sync_multiplying();
    if (thread == 0) {
      count_told(shared, index, DecodeCount::kRouter);
    }
  }
}

// Dense products in order: q, k, v and output of each layer, then the head. What is between them
// follows from which comes next.
__device__ __forceinline__ void multiply_layers(const DecodeParams& params, DecodeShared& shared) {
  const int num_layers = params.args.sizes.num_layers;
  const int position = *params.args.position;
  RingPlace place;
  embed(shared);
#pragma unroll 1
  for (int step = 0; step <= 2 * num_layers; ++step) {
    const int index = step / 2;
    DenseProduct product = DenseProduct::kOutput;
    if (step % 2 == 1) {
      const int num_told = attend(index, position, shared);
      shared.mark(index, DecodeMark::kAttention);
      bring_attention(index, num_told, shared);
    } else {
      product = index < num_layers ? DenseProduct::kQkv : DenseProduct::kHead;
      begin_layer(index - 1,
                  index < num_layers ? shared.layer(index).attention_norm : shared.args.final_norm,
                  shared);
      shared.mark(index, DecodeMark::kInput);
      bring_layer(params, index + 1, shared);
    }
    multiply_dense(product, index, shared, place);
    if (step % 2 == 1) {
      route(index, shared);
      multiply_experts(index, shared, place);
    } else {
      shared.mark(index, DecodeMark::kQkv);
    }
  }
  if (shared.is_lost != 0 && threadIdx.x == 0) {
    *params.args.lost = 0;
  }
}

__global__ void __launch_bounds__(DecodeConfig::kThreads, 1)
    decode_step(const __grid_constant__ DecodeParams params) {
  DecodeShared& shared = block_shared();
  set_up(params, shared);
  if (warp_index() < DecodeConfig::kWarps) {
    multiply_layers(params, shared);
  } else if (lane_index() == 0) {
    DecodeProducer(params, shared).run();
  }
}

}  // namespace nibble::kernels::device
