// Tensor-parallel cuts of MXFP4 experts along the intermediate axis, in whole blocks of 32, so that
// values and scales never part company:
//
//   gate_up  rows of the rank (gate and up alternate: rows 2 * first .. 2 * end), bias alike
//   down     columns of the rank; its bias on rank 0 alone, zeros elsewhere: ranks are summed
//
// Ranks get blocks as evenly as whole blocks allow, the first ones one more: 2880 values over 4 are
// 736, 736, 704, 704. Every rank's intermediate may be padded to a common size; padding is value
// code 0, scale byte 0, bias 0, and adds exactly nothing.
#pragma once

#include <cstdint>

#include "formats/bf16.h"
#include "formats/extent.h"
#include "nibble/status.h"

namespace nibble::kernels {

struct ExpertShard {
  std::int32_t rank = 0;
  std::int32_t num_ranks = 1;
  std::int64_t first_block = 0;  // of the intermediate axis
  std::int64_t num_blocks = 0;
  formats::LogicalCols intermediate;  // 32 * num_blocks
  formats::PaddedCols padded;         // what the shard is stored with
  bool has_down_bias = false;
};

struct ShardRequest {
  std::int64_t intermediate = 0;  // multiple of 32
  std::int32_t num_ranks = 1;
  std::int32_t rank = 0;
  std::int32_t padded_multiple = 0;
};

// Which blocks `rank` of `num_ranks` holds. `padded_multiple` 0: exactly its own; otherwise every
// rank is padded to the largest share, rounded up to the multiple (of 32). kInvalidArgument names
// the legal numbers of ranks: no rank may be left without a block.
Result<ExpertShard> plan_expert_shard(const ShardRequest& request);

// All experts of a layer as stored (gate/up interleaved), or one rank's share of them.
template <typename Byte, typename Bias>
struct Mxfp4Experts {
  Byte* gate_up_values = nullptr;  // [num_experts, 2 * intermediate, hidden / 2]
  Byte* gate_up_scales = nullptr;  // [num_experts, 2 * intermediate, hidden / 32]
  Bias* gate_up_bias = nullptr;    // [num_experts, 2 * intermediate]
  Byte* down_values = nullptr;     // [num_experts, hidden, intermediate / 2]
  Byte* down_scales = nullptr;     // [num_experts, hidden, intermediate / 32]
  Bias* down_bias = nullptr;       // [num_experts, hidden]
};
using Mxfp4ExpertsIn = Mxfp4Experts<const std::uint8_t, const formats::Bf16>;
using Mxfp4ExpertsOut = Mxfp4Experts<std::uint8_t, formats::Bf16>;

struct ExpertSizes {
  std::int32_t num_experts = 0;
  std::int64_t hidden = 0;        // multiple of 32
  std::int64_t intermediate = 0;  // of the whole layer
};

// Copies the rank's share; `to` is sized with shard.padded as its intermediate.
Status shard_experts(const Mxfp4ExpertsIn& from, const ExpertSizes& sizes, const ExpertShard& shard,
                     const Mxfp4ExpertsOut& to);

// The inverse, one rank at a time: writes the rank's part of the whole layer. The down bias is
// taken from the shard that has it.
Status unshard_experts(const Mxfp4ExpertsIn& from, const ExpertSizes& sizes,
                       const ExpertShard& shard, const Mxfp4ExpertsOut& to);

}  // namespace nibble::kernels
