// The expert products on a CPU, but for the inner products themselves, which every instruction set
// brings along: sorting by expert, both products, activation, combination.
//
// A worker owns a range of weight rows of every expert in use, so weights are read once, each
// worker's from memory in order. The sums of a row do not depend on the other rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/moe/moe.h"

namespace nibble::kernels {

// kTileRows rows of an expert's matrix with the inputs of its tokens.
struct ExpertTile {
  const ExpertRows* weight = nullptr;
  std::int64_t expert = 0;
  std::int64_t row = 0;          // the first, counted over all experts
  const std::byte* x = nullptr;  // [num_inputs] rows, padded; Int8Group with ExpertInputs::kInt8
  std::int64_t x_row_bytes = 0;
  float* sums = nullptr;        // [num_inputs, kTileRows]
  std::int32_t num_inputs = 0;  // 1 .. kTileInputs
  std::int32_t cols = 0;
  DType x_dtype = DType::kF32;
};

struct ExpertMath {
  void (*tile)(const ExpertTile& tile) = nullptr;
  // x is bf16 and inputs lie in quad order (mxfp4_tile.h), zeros behind.
  bool quads = false;
  // Inputs become float32 in split order (moe_tile.h). With ExpertInputs::kInt8 neither counts.
  bool widens = false;
};

Status run_experts(const MoeArgs& args, const Exec& exec, const ExpertMath& math);

}  // namespace nibble::kernels
