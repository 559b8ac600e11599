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

// What a lane holds of its warp's part of a band: words of each chunk; scales of chunk `lane % 4`.
struct BandPart {
  uint4 words[DecodeConfig::kChunks];
  std::uint32_t scales;

  __device__ __forceinline__ void read(const unsigned char* slot, int chunks, int thread) {
    const int first = thread / 32 * DecodeConfig::kChunks;
    const int lane = thread % 32;
    const int t = lane % 4;
#pragma unroll
    for (int c = 0; c < DecodeConfig::kChunks; ++c) {
      words[c] = first + c < chunks
                     ? *reinterpret_cast<const uint4*>(
                           slot + (first + c) * formats::kChunkValueBytes + 16 * lane)
                     : make_uint4(0, 0, 0, 0);
    }
    const unsigned char* at = slot + chunks * formats::kChunkValueBytes +
                              (first + t) * formats::kChunkScaleBytes + lane / 4 * 4;
    const bool has_chunk = t < DecodeConfig::kChunks && first + t < chunks;
    scales = has_chunk ? *reinterpret_cast<const std::uint32_t*>(at) : 0U;  // a factor of 0
  }
};

// Sums of the warp's columns for rows 2 g and 2 g + 1 of kCount bands, the same in a quad's lanes.
// Several at once, so that one's chain of matrix instructions runs beside another's.
template <int kCount>
__device__ __forceinline__ void multiply_parts(const BandPart (&parts)[kCount], const BandInput& x,
                                               float2 (&out)[kCount]) {
  float even[kCount][4] = {};  // two chains for each band
  float odd[kCount][4] = {};
#pragma unroll
  for (int c = 0; c < DecodeConfig::kChunks; ++c) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      x.multiply(4 * c, parts[i].words[c].x, even[i]);
      x.multiply(4 * c + 1, parts[i].words[c].y, odd[i]);
      x.multiply(4 * c + 2, parts[i].words[c].z, even[i]);
      x.multiply(4 * c + 3, parts[i].words[c].w, odd[i]);
    }
  }
  // The lane's columns are blocks 2 t and 2 t + 1: both of chunk t.
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const std::uint32_t scales = parts[i].scales;
    out[i].x = (even[i][0] + odd[i][0]) * scale_f32<0>(scales);
    out[i].x = fmaf(even[i][1] + odd[i][1], scale_f32<2>(scales), out[i].x);
    out[i].y = (even[i][2] + odd[i][2]) * scale_f32<1>(scales);
    out[i].y = fmaf(even[i][3] + odd[i][3], scale_f32<3>(scales), out[i].y);
  }
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      out[i].x += __shfl_xor_sync(0xFFFFFFFFU, out[i].x, step);
      out[i].y += __shfl_xor_sync(0xFFFFFFFFU, out[i].y, step);
    }
  }
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

// The next two bands, or one; sums of warps into shared.products.bands from `first` on.
__device__ __forceinline__ void multiply_pair(const BandInput& input, int chunks, int first,
                                              bool has_second, int thread, DecodeShared& shared,
                                              RingPlace& place) {
  const int warp = thread / 32;
  const bool has_part = warp * DecodeConfig::kChunks < chunks;
  BandPart parts[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (i == 0 || has_second) {
      wait_full(shared, place);
      if (has_part) {
        parts[i].read(shared.ring[place.index], chunks, thread);
      }
      leave_slot(shared, place, thread % 32 == 0, DecodeConfig::kQuarters);
      place.next();
    }
  }
  float2 sums[2];
  multiply_parts(parts, input, sums);
  if (has_part && thread % 4 == 0) {
    float* out = &shared.products.bands[first][warp][thread % 32 / 4 * 2];
    *reinterpret_cast<float2*>(out) = sums[0];
    if (has_second) {
      *reinterpret_cast<float2*>(out + DecodeConfig::kBandWarps * 16) = sums[1];
    }
  }
}

__device__ __forceinline__ void multiply_bands(const BandProduct& product, DecodeShared& shared,
                                               RingPlace& place) {
  const int thread = thread_index();
  const int chunks = (product.cols + formats::kChunkCols - 1) / formats::kChunkCols;
  const auto* x = reinterpret_cast<const std::uint32_t*>(shared.products.x);
  // Bands of one input after another: up to the end of the slot of top-k, or all.
  int unit = product.units.begin;
  int end =
      product.has_input_of_each ? (product.first_slot + 1) * product.num_bands : product.units.end;
#pragma unroll 1
  for (; unit < product.units.end; end += product.num_bands, x += product.cols / 2) {
    const int last = min(end, product.units.end);
    BandInput input;
    input.load(x, product.cols, thread);
#pragma unroll 1
    for (; unit < last; unit += 2) {
      multiply_pair(input, chunks, unit - product.units.begin, unit + 1 < last, thread, shared,
                    place);
    }
    unit = last;
  }
}

// The row whose sum this thread finishes: row `thread % 16` of the block's band `thread / 16`.
// Factor and bias come from memory, so they are asked for in front of the product.
struct BandRow {
  int thread;
  bool is_there;
  int slot;  // of top-k
  int row;   // of the expert's matrix
  float factor = 0.0F;
  __nv_bfloat16 bias = __ushort_as_bfloat16(0);

  __device__ __forceinline__ BandRow(const BandProduct& product, const DecodeShared& shared)
      : thread(thread_index()), slot(product.first_slot) {
    int band = product.units.begin + thread / 16 - slot * product.num_bands;
    if (band >= product.num_bands) {
      band -= product.num_bands;
      ++slot;
    }
    row = band * 16 + thread % 16;
    is_there = thread / 16 < product.units.size() && row < product.num_rows;
    if (is_there) {
      const std::int64_t expert = shared.ids[slot];
      factor = __ldg(product.tiles.factors + expert);
      if (product.tiles.bias != nullptr) {
        bias = __ldg(reinterpret_cast<const __nv_bfloat16*>(product.tiles.bias) +
                     expert * product.num_rows + row);
      }
    }
  }

  __device__ __forceinline__ float finish(int cols, const DecodeShared& shared) const {
    const int warps = (cols + 191) / 192;
    float sum = 0.0F;
#pragma unroll 5
    for (int warp = 0; warp < warps; ++warp) {
      sum += shared.products.bands[thread / 16][warp][thread % 16];
    }
    return fmaf(sum * kDecodeLower, factor, __bfloat162float(bias));
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
    const BandRow row(product, shared);
    if (is_down) {
      sync_multiplying();  // everyone has told, and read the input and the sums of gate/up
      if (thread_index() == 0) {
        count_told(shared, index, DecodeCount::kHidden);
      }
      shared.mark(index, DecodeMark::kGateUp);
      await_count(shared, index, DecodeCount::kHidden, shared.sizes().num_blocks);
      bring_h(index, product, shared);
      sync_multiplying();
      shared.mark(index, DecodeMark::kHidden);
    }
    multiply_bands(product, shared, place);
    sync_multiplying();
    if (row.thread / 32 * 2 < product.units.size()) {
      // A warp may reach one band past the last: what it finds there is not told.
      const float value = row.is_there ? row.finish(product.cols, shared) : 0.0F;
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
