// Which tensor goes into which file of a checkpoint, and the text that surrounds the data.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "weights/writer.h"

namespace nibble::weights {

struct Shard {
  std::string file;                        // "model-00001-of-00002.safetensors"
  std::vector<const TensorSpec*> tensors;  // in order of their data
  std::string head;                        // length prefix and header, padded to 8 bytes
  std::int64_t data_bytes = 0;
  std::int64_t bytes() const { return static_cast<std::int64_t>(head.size()) + data_bytes; }
};

struct ShardPlan {
  std::vector<Shard> shards;
  std::string index;  // empty for a single file
  std::int64_t total_bytes = 0;
};

std::int64_t spec_bytes(const TensorSpec& spec);

// Fills shards in the given order up to the limit; within a shard, wide element types come first so
// that every tensor is aligned to its elements. `tensors` must outlive the plan.
ShardPlan plan_shards(std::span<const TensorSpec> tensors, const WriteOptions& options);

}  // namespace nibble::weights
