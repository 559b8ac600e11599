// The producer: asks for all weights of the step in the order in which they are used, as far ahead
// as the ring reaches, some slots at a time. It waits for room, for slots to arrive, and for the
// experts' ids.
//
// One thread, which shares its scheduler with four multiplying warps: what it computes for each
// slot must be little, or it is what the step waits for.
#pragma once

#include "kernels/common/ptx_bulk.cuh"
#include "kernels/common/ptx_load.cuh"
#include "kernels/decode/device/decode_params.cuh"

namespace nibble::kernels::device {

class DecodeProducer {
 public:
  __device__ __forceinline__ DecodeProducer(const DecodeParams& params, DecodeShared& shared)
      : params_(params),
        shared_(shared),
        policy_(createpolicy_evict_first()),
        exchange_units_(units_of(params.exchange.words * 4)),
        hidden_units_(units_of(std::int64_t{params.args.sizes.hidden} * 4)),
        qkv_units_(units_of(std::int64_t{params.args.sizes.qkv_width()} * 4)),
        router_units_(
            units_of(std::int64_t{params.args.sizes.num_experts} * params.args.sizes.hidden * 2)) {}

  __device__ __forceinline__ void run() {
    const DecodeSizes& sizes = params_.args.sizes;
#pragma unroll 1
    for (int index = 0; index < sizes.num_layers; ++index) {
      const DecodeLayer& layer = params_.layers[index];
      rows(layer.qkv, sizes.hidden, shared_.qkv_rows);
      if (index + 1 < sizes.num_layers) {
        prefetch_next(index + 1);
      }
      rows(layer.o, sizes.q_width(), shared_.own_rows);
      mbarrier_wait(&shared_.routed, static_cast<std::uint32_t>(index) & 1U);
      bands(layer.gate_up, shared_.gate_up_units, shared_.gate_up_slot, sizes.gate_up_bands(),
            sizes.hidden);
      bands(layer.down, shared_.down_units, shared_.down_slot, sizes.down_bands(),
            sizes.intermediate);
    }
    rows(params_.args.head, sizes.hidden, shared_.vocab_rows);
  }

 private:
  // This block's part of what is small and read by all, into L2. Words of the exchange were filled
  // before the step and have left L2 since: a reader of a sector of which only some words were
  // written would wait for memory.
  __device__ __forceinline__ void prefetch_next(int index) {
    const DecodeLayer& layer = params_.layers[index];
    prefetch(params_.args.exchange + index * params_.exchange.words, exchange_units_);
    prefetch(layer.attention_norm, hidden_units_);
    prefetch(layer.qkv_bias, qkv_units_);
    prefetch(layer.o_bias, hidden_units_);
    prefetch(layer.mlp_norm, hidden_units_);
    prefetch(layer.router, router_units_);
    if (blockIdx.x == 0) {
      for (int i = 0; i < params_.args.sizes.num_heads; i += 32) {  // lines of 128 bytes
        prefetch_l2(layer.sinks + i);
      }
      for (int i = 0; i < params_.args.sizes.num_experts; i += 32) {
        prefetch_l2(layer.router_bias + i);
      }
    }
  }
  static constexpr int kUnitBytes = 64;
  __device__ __forceinline__ DecodeRange units_of(std::int64_t bytes) const {
    return decode_share(static_cast<int>(bytes / kUnitBytes), static_cast<int>(blockIdx.x),
                        params_.args.sizes.num_blocks);
  }
  __device__ __forceinline__ void prefetch(const void* from, DecodeRange units) {
    if (units.size() > 0) {
      cp_async_bulk_prefetch_l2(static_cast<const unsigned char*>(from) + units.begin * kUnitBytes,
                                static_cast<std::uint32_t>(units.size() * kUnitBytes));
    }
  }

  __device__ __forceinline__ void copy(unsigned char* to, const void* from, std::uint32_t bytes) {
    cp_async_bulk(to, from, bytes, &shared_.full[place_.index], policy_);
  }
  // The slot that comes next, empty, `bytes` announced.
  __device__ __forceinline__ unsigned char* take(std::uint32_t bytes) {
    mbarrier_wait(&shared_.empty[place_.index], place_.parity ^ 1U);
    if (num_in_flight_ == DecodeConfig::kInFlight) {
      mbarrier_wait(&shared_.full[landed_.index], landed_.parity);
      landed_.next();
    } else {
      ++num_in_flight_;
    }
    mbarrier_arrive_expect_tx(&shared_.full[place_.index], bytes);
    return shared_.ring[place_.index];
  }

  __device__ __forceinline__ void rows(const formats::Bf16* weight, int cols, DecodeRange range) {
    const auto row_bytes = static_cast<std::uint32_t>(cols * 2);
    const auto slot_bytes = static_cast<std::uint32_t>(rows_of_slot(cols)) * row_bytes;
    const auto* from = reinterpret_cast<const unsigned char*>(weight) +
                       static_cast<std::int64_t>(range.begin) * row_bytes;
    auto left = static_cast<std::uint32_t>(range.size()) * row_bytes;
#pragma unroll 1
    while (left > 0) {
      const std::uint32_t bytes = min(left, slot_bytes);
      copy(take(bytes), from, bytes);
      place_.next();
      from += bytes;
      left -= bytes;
    }
  }

  __device__ __forceinline__ void bands(const Mxfp4Tiles& tiles, DecodeRange units, int slot,
                                        int num_bands, int cols) {
    const int chunks = (cols + formats::kChunkCols - 1) / formats::kChunkCols;
    const auto value_bytes = static_cast<std::uint32_t>(chunks * formats::kChunkValueBytes);
    const auto scale_bytes = static_cast<std::uint32_t>(chunks * formats::kChunkScaleBytes);
    int first = units.begin - slot * num_bands;  // band of the slot's expert
#pragma unroll 1
    for (int left = units.size(); left > 0; ++slot, first = 0) {
      const std::int64_t band = std::int64_t{shared_.ids[slot]} * num_bands + first;
      const unsigned char* values = tiles.values + band * value_bytes;
      const unsigned char* scales = tiles.scales + band * scale_bytes;
      const int count = min(left, num_bands - first);
      left -= count;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        unsigned char* const to = take(value_bytes + scale_bytes);
        copy(to, values, value_bytes);
        copy(to + value_bytes, scales, scale_bytes);
        place_.next();
        values += value_bytes;
        scales += scale_bytes;
      }
    }
  }

  const DecodeParams& params_;
  DecodeShared& shared_;
  std::uint64_t policy_;
  // This block's part of what it brings into L2.
  DecodeRange exchange_units_;
  DecodeRange hidden_units_;
  DecodeRange qkv_units_;
  DecodeRange router_units_;
  RingPlace place_;
  RingPlace landed_;  // the next one to arrive
  int num_in_flight_ = 0;
};

}  // namespace nibble::kernels::device
