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

}  // namespace nibble::kernels::device
