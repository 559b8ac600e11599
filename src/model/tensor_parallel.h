// Which tensor-parallel groups a model can be cut for: attention by whole KV heads, the expert
// width by whole scale blocks (kernels/convert/expert_shard.h does that cut).
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "nibble/status.h"

namespace nibble::model {

// Sizes of a group that this model can be cut for, rising: every rank holds a whole number of query
// and KV heads (KV heads are not replicated) and at least one block of each expert.
std::vector<std::int32_t> tensor_parallel_sizes(const ModelConfig& config);

// kInvalidArgument with the sizes that are possible.
Status check_tensor_parallel(const ModelConfig& config, std::int32_t ranks);

}  // namespace nibble::model
