#include "weights/shard_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "weights/checkpoint_index.h"
#include "weights/dtype_names.h"

namespace nibble::weights {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kAlign = 8;

std::string make_head(const Shard& shard, const std::map<std::string, std::string>& metadata) {
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::int64_t begin = 0;
  for (const TensorSpec* spec : shard.tensors) {
    const std::int64_t end = begin + spec_bytes(*spec);
    header[spec->name] = {{"dtype", dtype_spelling(spec->dtypes.front())},
                          {"shape", spec->shape},
                          {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string json = header.dump();
  json.resize((json.size() + kAlign - 1) / kAlign * kAlign, ' ');
  std::string head;
  for (std::size_t i = 0; i < 8; ++i) {
    head += static_cast<char>(json.size() >> (8 * i) & 0xFFU);
  }
  return head + json;
}

std::string make_index(const ShardPlan& plan) {
  std::int64_t total = 0;
  std::map<std::string, std::string> weight_map;
  for (const Shard& shard : plan.shards) {
    total += shard.data_bytes;
    for (const TensorSpec* spec : shard.tensors) {
      weight_map[spec->name] = shard.file;
    }
  }
  ordered_json index;
  index["metadata"] = {{"total_size", total}};
  index["weight_map"] = weight_map;
  return index.dump(2) + "\n";
}

void name_files(std::vector<Shard>& shards) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1
                         ? std::string(kSingleFile)
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
}

}  // namespace

std::int64_t spec_bytes(const TensorSpec& spec) {
  NIBBLE_CHECK(!spec.dtypes.empty());
  return TensorView{nullptr, spec.dtypes.front(), spec.shape}.bytes();
}

ShardPlan plan_shards(std::span<const TensorSpec> tensors, const WriteOptions& options) {
  ShardPlan plan;
  plan.shards.emplace_back();
  for (const TensorSpec& spec : tensors) {
    const std::int64_t bytes = spec_bytes(spec);
    if (!plan.shards.back().tensors.empty() &&
        plan.shards.back().data_bytes + bytes > options.max_shard_bytes) {
      plan.shards.emplace_back();
    }
    plan.shards.back().tensors.push_back(&spec);
    plan.shards.back().data_bytes += bytes;
  }
  name_files(plan.shards);
  for (Shard& shard : plan.shards) {
    std::stable_sort(shard.tensors.begin(), shard.tensors.end(),
                     [](const TensorSpec* a, const TensorSpec* b) {
                       return dtype_bits(a->dtypes.front()) > dtype_bits(b->dtypes.front());
                     });
    shard.head = make_head(shard, options.metadata);
    plan.total_bytes += shard.bytes();
  }
  if (plan.shards.size() > 1) {
    plan.index = make_index(plan);
    plan.total_bytes += static_cast<std::int64_t>(plan.index.size());
  }
  return plan;
}

}  // namespace nibble::weights
