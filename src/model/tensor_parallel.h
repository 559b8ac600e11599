// How tensors are cut over the ranks of a tensor-parallel group: attention by whole KV heads, the
// expert width by whole scale blocks, the vocabulary by rows.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "nibble/status.h"

namespace nibble::model {

inline constexpr std::int64_t kScaleBlockElems = 32;

// Part of one rank: elements [begin, end) of an axis.
struct AxisCut {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t width() const { return end - begin; }
};

// Whole blocks, nearly equal, the longer parts first: 2880 over 4 ranks is 736, 736, 704, 704. A
// value and its scale so never part company. `width` is a multiple of `block`.
AxisCut cut_blocks(std::int64_t width, std::int64_t block, std::int32_t ranks, std::int32_t rank);

// Sizes of a group that this model can be cut for, rising: every rank holds a whole number of query
// and KV heads (KV heads are not replicated) and at least one block of each expert.
std::vector<std::int32_t> tensor_parallel_sizes(const ModelConfig& config);

// kInvalidArgument with the sizes that are possible.
Status check_tensor_parallel(const ModelConfig& config, std::int32_t ranks);

}  // namespace nibble::model
