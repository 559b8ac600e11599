// The experts of one token: gate/up, what blocks tell each other of h, down.
#pragma once

#include "kernels/common/ptx_cp_async.cuh"
#include "kernels/decode/device/decode_bands.cuh"

namespace nibble::kernels::device {

// The row whose sum this thread finishes: row `thread % 16` of the block's band `thread / 16`.
struct BandRow {
  int thread;
  bool is_there;
  int slot;  // of top-k
  int row;   // of the expert's matrix

  __device__ __forceinline__ BandRow(const BandProduct& product)
      : thread(thread_index()), slot(product.first_slot) {
    int band = product.units.begin + thread / 16 - slot * product.num_bands;
    if (band >= product.num_bands) {
      band -= product.num_bands;
      ++slot;
    }
    row = band * 16 + thread % 16;
    is_there = thread / 16 < product.units.size() && row < product.num_rows;
  }

  // Factor and bias into shared memory: asked for in front of the product.
  __device__ __forceinline__ void ask(const BandProduct& product, DecodeShared& shared) const {
    if (is_there && thread % 2 == 0 && product.tiles.bias != nullptr) {
      cp_async_ca_4(shared_address(&shared.band_bias[thread / 2]),
                    product.tiles.bias + std::int64_t{shared.ids[slot]} * product.num_rows + row);
    }
    if (thread < 2 && product.first_slot + thread < shared.sizes().top_k) {
      cp_async_ca_4(shared_address(&shared.band_factors[thread]),
                    product.tiles.factors + shared.ids[product.first_slot + thread]);
    }
    cp_async_commit_group();
  }

  __device__ __forceinline__ float finish(const BandProduct& product,
                                          const DecodeShared& shared) const {
    const int warps = (product.cols + 191) / 192;
    float sum = 0.0F;
#pragma unroll 5
    for (int warp = 0; warp < warps; ++warp) {
      sum += shared.products.bands[thread / 16][warp][thread % 16];
    }
    const float bias =
        product.tiles.bias == nullptr
            ? 0.0F
            : __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(shared.band_bias)[thread]);
    return fmaf(sum * kDecodeLower, shared.band_factors[slot - product.first_slot], bias);
  }
};

// h = activation(gate/up): pairs of bf16 told by every fourth thread. Whole warps.
__device__ __forceinline__ void tell_h(int index, const BandRow& row, float value,
                                       DecodeShared& shared) {
  const float up = __shfl_down_sync(0xFFFFFFFFU, value, 1);
  const float h = gated(value, up, shared.args.alpha, shared.args.limit);
  const float next = __shfl_down_sync(0xFFFFFFFFU, h, 2);
  if (row.is_there && row.thread % 4 == 0) {
    tell(shared.words(index, shared.exchange.h) +
             (row.slot * shared.sizes().intermediate + row.row / 2) / 2,
         cvt_bf16x2(h, next));
  }
}

// Brings h of the slots that this block's bands need.
__device__ __forceinline__ void bring_h(int index, const BandProduct& product,
                                        DecodeShared& shared) {
  if (product.units.size() == 0) {
    return;
  }
  const int words = shared.sizes().intermediate / 2;
  const bool has_two = product.units.end > (product.first_slot + 1) * product.num_bands;
  const int pieces = (has_two ? 2 : 1) * words / 4;
  const std::uint32_t* from = shared.words(index, shared.exchange.h) + product.first_slot * words;
  const int thread = thread_index();
  uint4 h[2];  // covers kInputPieces
  const auto piece = [&](int i) { return thread + i * DecodeConfig::kMultiplyThreads; };
  bring(
      h, shared, [&](int i) { return piece(i) < pieces; },
      [&](int i) { return from + 4 * piece(i); });
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (piece(i) < pieces) {
      shared.products.x[piece(i)] = h[i];
    }
  }
}

// Both products: one loop, so that their code is there once. Code that does not fit in the
// instruction cache is waited for in every layer.
__device__ __forceinline__ void multiply_experts(int index, DecodeShared& shared,
                                                 RingPlace& place) {
#pragma unroll 1
  for (int which = 0; which < 2; ++which) {
    const bool is_down = which == 1;
    const BandProduct product =
        is_down ? down_product(index, shared) : gate_up_product(index, shared);
    const BandRow row(product);
    if (!is_down) {
      row.ask(product, shared);
    }
    if (is_down) {
      sync_multiplying();  // everyone has told, and read the input and the sums of gate/up
      if (thread_index() == 0) {
        count_told(shared, index, DecodeCount::kHidden);
      }
      row.ask(product, shared);
      shared.mark(index, DecodeMark::kGateUp);
      await_count(shared, index, DecodeCount::kHidden, shared.sizes().num_blocks);
      bring_h(index, product, shared);
      sync_multiplying();
      shared.mark(index, DecodeMark::kHidden);
    }
    Bands(product, shared, place).run();
    cp_async_wait_group<0>();
    sync_multiplying();
    if (row.thread / 32 * 2 < product.units.size()) {
      // A warp may reach one band past the last: what it finds there is not told.
      const float value = row.is_there ? row.finish(product, shared) : 0.0F;
      if (!is_down) {
        tell_h(index, row, value, shared);
      } else if (row.is_there) {
        tell(shared.words(index, shared.exchange.y) + row.slot * shared.sizes().hidden + row.row,
             value);
      }
    }
  }
  sync_multiplying();
  if (thread_index() == 0) {
    count_told(shared, index, DecodeCount::kDown);
  }
  shared.mark(index, DecodeMark::kDown);
}

}  // namespace nibble::kernels::device
