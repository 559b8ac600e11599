// Activations of one step and the paged cache, allocated once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/model.h"
#include "tensor/buffer.h"
#include "tensor/exec.h"

namespace nibble::model {

// Keys and values of one layer: [num_pages, num_kv_heads, page_size, head_dim] each.
struct LayerCache {
  Buffer<std::byte> k;
  Buffer<std::byte> v;
};

struct KvCache {
  std::vector<LayerCache> layers;
  std::int64_t bytes = 0;

  static KvCache create(const ModelConfig& config, const ModelOptions& options);
};

// Row counts are those of the largest plan.
struct Workspace {
  Buffer<float> residual;           // [tokens, hidden]
  Buffer<std::byte> normed;         // [max(tokens, logit rows), hidden] activation dtype
  Buffer<float> qkv;                // [tokens, (heads + 2 kv heads) * head_dim]
  Buffer<std::byte> q;              // [tokens, heads * head_dim] activation dtype
  Buffer<std::byte> attention;      // likewise
  Buffer<float> router_logits;      // [tokens, experts]
  Buffer<std::int32_t> expert_ids;  // [tokens, top_k]
  Buffer<float> expert_weights;     // [tokens, top_k]
  Buffer<float> logit_inputs;       // [logit rows, hidden]
  Buffer<std::int32_t> positions;   // [tokens]
  Buffer<std::int64_t> slots[kNumCacheGroups];  // [tokens]
  Buffer<std::byte> scratch;                    // attention and moe, one after the other

  static Workspace create(const ModelConfig& config, const ModelOptions& options, const Exec& exec);
  std::int64_t bytes() const;
};

}  // namespace nibble::model
