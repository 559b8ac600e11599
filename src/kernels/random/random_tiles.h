// Random MXFP4 experts straight into tiles (formats/expert_tiles.h): what pack_expert_tiles() makes
// of the rows that random_fill() gives, without room for the rows.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/exec.h"

namespace nibble::kernels {

// One matrix of every expert, as tensors [num_experts, rows, cols / 32, 16] of kBytes and
// [num_experts, rows, cols / 32] of kScales would hold it.
struct RandomTilesArgs {
  std::uint8_t* values = nullptr;  // [num_experts, value_bytes()], 4-byte aligned
  std::uint8_t* scales = nullptr;  // [num_experts, scale_bytes()]
  float* factors = nullptr;        // [num_experts]
  std::uint64_t blocks_key = 0;
  std::uint64_t scales_key = 0;
  std::uint8_t middle_scale = 0;  // 2 to 253
  std::int32_t num_experts = 0;
  std::int32_t rows = 0;
  std::int32_t cols = 0;  // multiple of 32
};

// Scales are rebased by middle_scale + 1, the largest that random_fill() gives, whether or not an
// expert has it: of 256 blocks all lack it once in 10^45. kInvalidArgument: sizes.
Status random_tiles(const RandomTilesArgs& args, const Exec& exec);
// By way of the rows, which it allocates.
Status random_tiles_ref(const RandomTilesArgs& args);

// Every kernel of this build. Tests and benchmarks walk it.
std::span<const Instance<RandomTilesArgs>> random_tiles_instances();

}  // namespace nibble::kernels
