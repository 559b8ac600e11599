#include "model/tensor_parallel.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace nibble::model {
namespace {

constexpr std::int32_t kScaleBlock = 32;

}  // namespace

std::vector<std::int32_t> tensor_parallel_sizes(const ModelConfig& config) {
  std::vector<std::int32_t> sizes;
  for (std::int32_t ranks = 1; ranks <= config.num_kv_heads; ++ranks) {
    const bool cuts_heads = config.num_heads % ranks == 0 && config.num_kv_heads % ranks == 0;
    const bool cuts_experts =
        config.intermediate % kScaleBlock == 0 && config.intermediate / kScaleBlock >= ranks;
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
               ranks, config.num_heads, config.num_kv_heads, config.intermediate / kScaleBlock,
               kScaleBlock, fmt::join(sizes, ", "));
}

}  // namespace nibble::model
