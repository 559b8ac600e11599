// What both expert products are given, and how four sums of a fragment leave it.
#pragma once

#include "kernels/moe/device/expert_matrix.cuh"

namespace nibble::kernels::device {

// Rows of the product, sorted by expert (kernels/route/ragged.h). The output of row p is row p.
struct ExpertProduct {
  ExpertTiles weight;
  const __nv_bfloat16* x = nullptr;          // [.., weight.cols], 16-byte aligned rows
  const std::int32_t* gather = nullptr;      // row p reads row gather[p] / top_k; null: row p
  const std::int32_t* slice_offs = nullptr;  // [num_experts + 1]
  void* out = nullptr;  // gate/up: bf16 [rows, weight.rows / 2]; down: float [rows, weight.rows]
  std::int32_t top_k = 1;
  std::int32_t num_experts = 0;
  float alpha = 0.0F;
  float limit = 0.0F;
  // The weights and slice_offs were complete before the grid in front of this one began.
  bool may_prefetch = false;
};

enum class Epilogue { kGated, kPlain };

__device__ __forceinline__ std::int64_t source_row(const ExpertProduct& args, std::int32_t row) {
  return args.gather == nullptr ? row : args.gather[row] / args.top_k;
}

// What a lane adds and multiplies to its sums of one band.
struct BandTail {
  float factor = 0.0F;
  float2 bias = {0.0F, 0.0F};
  BandTail() = default;
  __device__ __forceinline__ BandTail(const ExpertProduct& args, std::int32_t expert,
                                      std::int32_t band, std::int32_t lane)
      : factor(args.weight.factors[expert]),
        bias(bias_pair(args.weight, expert, band * formats::kBandRows + lane / 4 * 2)) {}
};

// Stores the sums of one lane of a 16 x 8 fragment: rows (2 g, 2 g, 2 g + 1, 2 g + 1) of the band
// at tokens 2 t and 2 t + 1. `first_row` is the product row of the fragment's token 0, of `count`
// tokens. Called by whole warps.
template <Epilogue kEpilogue>
__device__ __forceinline__ void store_fragment(const ExpertProduct& args, const BandTail& tail,
                                               const float* sums, std::int32_t band,
                                               std::int32_t lane, std::int64_t first_row,
                                               std::int32_t count) {
  const float a0 = fmaf(sums[0], tail.factor, tail.bias.x);
  const float a1 = fmaf(sums[1], tail.factor, tail.bias.x);
  const float b0 = fmaf(sums[2], tail.factor, tail.bias.y);
  const float b1 = fmaf(sums[3], tail.factor, tail.bias.y);
  const std::int32_t g = lane / 4;
  const std::int32_t t = lane % 4;
  if constexpr (kEpilogue == Epilogue::kGated) {
    const std::uint32_t pair =
        cvt_bf16x2(gated(a0, b0, args.alpha, args.limit), gated(a1, b1, args.alpha, args.limit));
    const std::uint32_t turned = movmatrix_trans(pair);  // token g, values 2 t and 2 t + 1
    const std::int32_t width = args.weight.rows / 2;
    const std::int32_t column = band * 8 + 2 * t;
    if (g < count && column < width) {
      auto* out = static_cast<__nv_bfloat16*>(args.out) + (first_row + g) * width + column;
      *reinterpret_cast<std::uint32_t*>(out) = turned;
    }
  } else {
    const std::int32_t width = args.weight.rows;
    const std::int32_t column = band * formats::kBandRows + 2 * g;
    if (column < width) {
      auto* out = static_cast<float*>(args.out) + (first_row + 2 * t) * width + column;
      if (2 * t < count) {
        *reinterpret_cast<float2*>(out) = make_float2(a0, b0);
      }
      if (2 * t + 1 < count) {
        *reinterpret_cast<float2*>(out + width) = make_float2(a1, b1);
      }
    }
  }
}

}  // namespace nibble::kernels::device
