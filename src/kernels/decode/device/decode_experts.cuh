// Bands of MXFP4 experts (formats/expert_tiles.h) times one vector. A slot of the ring is a band;
// 15 warps take three chunks of 64 columns each, whose part of the vector stays in registers.
//
// A matrix instruction multiplies eight vectors, and there is one: its columns take the blocks of
// 32 inputs instead. Column n holds the inputs of the warp's block n and zeros elsewhere, so all
// twelve words of a warp go into one accumulator, and scales meet a block's sum once.
//
// Sums: fp32, 16 columns at a time inside a block of 32, blocks by the lanes of a quad, then over
// warps in order.
#pragma once

#include "kernels/common/element.cuh"
#include "kernels/common/ptx_cp_async.cuh"
#include "kernels/decode/device/decode_params.cuh"
#include "kernels/moe/device/expert_matrix.cuh"

namespace nibble::kernels::device {

// Weights enter as values times 2^-126, x is raised by 2^60 to keep products normal: exact for
// |x| < 2^58 (as in moe_stream.cuh).
inline constexpr std::uint32_t kDecodeRaise = 0x5D805D80U;
inline constexpr float kDecodeLower = 0x1p-60F;

class BandInput {
 public:
  static constexpr int kWords = DecodeConfig::kChunks * 4;

  // `x`: pairs of bf16 [cols / 2].
  __device__ __forceinline__ void load(const std::uint32_t* x, int cols, int thread) {
    const int block = thread % 32 / 4;  // the lane's column of the right-hand fragments
    const int t = thread % 4;
    const int first = thread / 32 * DecodeConfig::kChunks * formats::kChunkCols;
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      const int col = first + 16 * word;
      const bool is_mine = block == word / 2 && col < cols;
      pairs_[word][0] = is_mine ? mul_bf16x2(x[col / 2 + t], kDecodeRaise) : 0U;
      pairs_[word][1] = is_mine ? mul_bf16x2(x[col / 2 + t + 4], kDecodeRaise) : 0U;
    }
  }

  // Adds word `word` of the lane's rows times the inputs.
  __device__ __forceinline__ void multiply(int word, std::uint32_t weights,
                                           float (&sums)[4]) const {
    std::uint32_t fragment[4];
    spread_word(weights, fragment);
    mma_m16n8k16_bf16(sums, fragment, pairs_[word][0], pairs_[word][1]);
  }

 private:
  std::uint32_t pairs_[kWords][2] = {};
};

// Where a lane's part of a band lies in a slot.
struct BandPlace {
  int values;  // first of its bytes
  int scales;  // those of chunk `lane % 4` of the warp's
  int chunks;  // of the warp
  bool has_scales;

  __device__ __forceinline__ BandPlace(int all_chunks, int thread) {
    const int first = thread / 32 * DecodeConfig::kChunks;
    const int lane = thread % 32;
    chunks = all_chunks - first;
    values = first * formats::kChunkValueBytes + 16 * lane;
    scales = all_chunks * formats::kChunkValueBytes +
             (first + lane % 4) * formats::kChunkScaleBytes + lane / 4 * 4;
    has_scales = lane % 4 < min(chunks, DecodeConfig::kChunks);
  }
};

// What a lane holds of its warp's part of a band: words of each chunk; scales of chunk `lane % 4`.
struct BandPart {
  uint4 words[DecodeConfig::kChunks];
  std::uint32_t scales;

  __device__ __forceinline__ void read(const unsigned char* slot, const BandPlace& place) {
#pragma unroll
    for (int c = 0; c < DecodeConfig::kChunks; ++c) {
      words[c] =
          c < place.chunks
              ? *reinterpret_cast<const uint4*>(slot + place.values + c * formats::kChunkValueBytes)
              : make_uint4(0, 0, 0, 0);
    }
    // No scale is a factor of 0.
    scales = place.has_scales ? *reinterpret_cast<const std::uint32_t*>(slot + place.scales) : 0U;
  }
};

// Sums of the warp's columns for rows 2 g and 2 g + 1, the same in a quad's lanes.
__device__ __forceinline__ float2 multiply_part(const BandPart& part, const BandInput& x) {
  float even[4] = {};
  float odd[4] = {};
#pragma unroll
  for (int c = 0; c < DecodeConfig::kChunks; ++c) {
    x.multiply(4 * c, part.words[c].x, even);
    x.multiply(4 * c + 1, part.words[c].y, odd);
    x.multiply(4 * c + 2, part.words[c].z, even);
    x.multiply(4 * c + 3, part.words[c].w, odd);
  }
  // The lane's columns are blocks 2 t and 2 t + 1: both of chunk t.
  float2 out;
  out.x = (even[0] + odd[0]) * scale_f32<0>(part.scales);
  out.x = fmaf(even[1] + odd[1], scale_f32<2>(part.scales), out.x);
  out.y = (even[2] + odd[2]) * scale_f32<1>(part.scales);
  out.y = fmaf(even[3] + odd[3], scale_f32<3>(part.scales), out.y);
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    out.x += __shfl_xor_sync(0xFFFFFFFFU, out.x, step);
    out.y += __shfl_xor_sync(0xFFFFFFFFU, out.y, step);
  }
  return out;
}

struct BandProduct {
  const Mxfp4Tiles& tiles;
  int num_rows;
  int cols;
  int num_bands;           // of one expert
  DecodeRange units;       // of this block: slot of top-k * num_bands + band
  int first_slot;          // of the units, which reach into one more at most
  bool has_input_of_each;  // x holds a vector for each slot that `units` touch, else one for all
};

__device__ __forceinline__ BandProduct gate_up_product(int index, const DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  return {shared.layer(index).gate_up, 2 * sizes.intermediate, sizes.hidden, sizes.gate_up_bands(),
          shared.gate_up_units,        shared.gate_up_slot,    false};
}
__device__ __forceinline__ BandProduct down_product(int index, const DecodeShared& shared) {
  const DecodeSizes& sizes = shared.sizes();
  return {shared.layer(index).down,
          sizes.hidden,
          sizes.intermediate,
          sizes.down_bands(),
          shared.down_units,
          shared.down_slot,
          true};
}

// This block's bands of a product, each read ahead of the product of the one before; sums of warps
// into shared.products.bands.
class Bands {
 public:
  __device__ __forceinline__ Bands(const BandProduct& product, DecodeShared& shared,
                                   RingPlace& place)
      : product_(product),
        shared_(shared),
        place_(place),
        left_(place),
        thread_(thread_index()),
        part_((product.cols + formats::kChunkCols - 1) / formats::kChunkCols, thread_),
        x_(reinterpret_cast<const std::uint32_t*>(shared.products.x)),
        unit_(product.units.begin),
        end_(product.units.begin) {}

  __device__ __forceinline__ void run() {
    if (product_.units.size() == 0) {
      return;
    }
    // Bands of one input after another: up to the end of the slot of top-k, or all.
    int last = product_.has_input_of_each ? (product_.first_slot + 1) * product_.num_bands
                                          : product_.units.end;
    BandPart first = {};
    BandPart second = {};
    read(first);
#pragma unroll 1
    while (true) {
      if (unit_ == end_) {
        input_.load(x_, product_.cols, thread_);
        x_ += product_.cols / 2;
        end_ = min(last, product_.units.end);
        last += product_.num_bands;
      }
      if (!step(first, second)) {
        break;
      }
      first = second;
    }
  }

 private:
  __device__ __forceinline__ void read(BandPart& to) {
    wait_full(shared_, place_);
    to.read(shared_.ring[place_.index], part_);
    place_.next();
  }
  // Whether there is more.
  __device__ __forceinline__ bool step(const BandPart& now, BandPart& ahead) {
    leave_slot(shared_, left_, thread_ % 32 == 0, DecodeConfig::kQuarters);
    left_.next();
    const bool has_more = unit_ + 1 < product_.units.end;
    if (has_more) {
      read(ahead);
    }
    const float2 sums = multiply_part(now, input_);
    if (part_.chunks > 0 && thread_ % 4 == 0) {
      float* out =
          &shared_.products.bands[unit_ - product_.units.begin][thread_ / 32][thread_ % 32 / 4 * 2];
      *reinterpret_cast<float2*>(out) = sums;
    }
    ++unit_;
    return has_more;
  }

  const BandProduct& product_;
  DecodeShared& shared_;
  RingPlace& place_;
  RingPlace left_;  // what is given back to the producer next
  int thread_;
  BandPlace part_;
  const std::uint32_t* x_;
  BandInput input_;
  int unit_;
  int end_;  // of the bands of the input
};

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
