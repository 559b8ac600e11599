#include "model/tensor_parallel.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace nibble::model {

AxisCut cut_blocks(std::int64_t width, std::int64_t block, std::int32_t ranks, std::int32_t rank) {
  NIBBLE_CHECK(block > 0 && width % block == 0, width, block);
  NIBBLE_CHECK(rank >= 0 && rank < ranks, rank, ranks);
  const std::int64_t blocks = width / block;
  const std::int64_t each = blocks / ranks;
  const std::int64_t longer = blocks % ranks;  // ranks that hold one more
  const std::int64_t begin = rank * each + std::min<std::int64_t>(rank, longer);
  return {begin * block, (begin + each + (rank < longer ? 1 : 0)) * block};
}

std::vector<std::int32_t> tensor_parallel_sizes(const ModelConfig& config) {
  std::vector<std::int32_t> sizes;
  for (std::int32_t ranks = 1; ranks <= config.num_kv_heads; ++ranks) {
    const bool cuts_heads = config.num_heads % ranks == 0 && config.num_kv_heads % ranks == 0;
    const bool cuts_experts = config.intermediate % kScaleBlockElems == 0 &&
                              config.intermediate / kScaleBlockElems >= ranks;
    if (ranks == 1 || (cuts_heads && cuts_experts)) {
      sizes.push_back(ranks);
    }
  }
  return sizes;
}

Status check_tensor_parallel(const ModelConfig& config, std::int32_t ranks) {
  const std::vector<std::int32_t> sizes = tensor_parallel_sizes(config);
  if (std::find(sizes.begin(), sizes.end(), ranks) != sizes.end()) {
    return {};
  }
  return error(Code::kInvalidArgument,
               "{} ranks cannot share {} query heads, {} KV heads and {} blocks of {} expert "
               "columns; possible: {}",
               ranks, config.num_heads, config.num_kv_heads, config.intermediate / kScaleBlockElems,
               kScaleBlockElems, fmt::join(sizes, ", "));
}

}  // namespace nibble::model
