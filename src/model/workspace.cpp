#include "model/workspace.h"

#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/moe/moe.h"

namespace nibble::model {
namespace {

std::int64_t element_bytes(DType dtype) { return dtype_bits(dtype) / 8; }

std::int64_t layer_page_bytes(const ModelConfig& config, const ModelOptions& options) {
  return std::int64_t{config.num_kv_heads} * options.page_size * config.head_dim *
         element_bytes(options.kv_dtype);
}

CacheGroup group_of(const ModelConfig& config, std::size_t layer) {
  return config.is_window_layer[layer] ? CacheGroup::kWindow : CacheGroup::kFull;
}

std::int64_t scratch_bytes(const ModelConfig& config, const ModelOptions& options,
                           const Exec& exec) {
  const kernels::AttentionArgs attention{.num_heads = config.num_heads,
                                         .num_kv_heads = config.num_kv_heads,
                                         .head_dim = config.head_dim,
                                         .page_size = options.page_size,
                                         .q_dtype = options.activation,
                                         .kv_dtype = options.kv_dtype};
  const kernels::MoeArgs moe{.hidden = config.hidden,
                             .intermediate = config.intermediate,
                             .num_experts = config.num_experts,
                             .top_k = config.top_k,
                             .x_dtype = options.activation};
  return std::max(kernels::attention_workspace_bytes(attention, options.max_batch_tokens,
                                                     options.max_position, exec),
                  kernels::moe_workspace_bytes(moe, options.max_batch_tokens));
}

}  // namespace

std::int64_t page_bytes(const ModelConfig& config, const ModelOptions& options, CacheGroup group) {
  std::int64_t layers = 0;
  for (std::size_t layer = 0; layer < config.is_window_layer.size(); ++layer) {
    layers += group_of(config, layer) == group ? 1 : 0;
  }
  return 2 * layers * layer_page_bytes(config, options);
}

KvCache KvCache::create(const ModelConfig& config, const ModelOptions& options) {
  KvCache cache;
  for (std::size_t layer = 0; layer < config.is_window_layer.size(); ++layer) {
    const std::int64_t pages = options.num_pages[static_cast<int>(group_of(config, layer))];
    const auto bytes = static_cast<std::size_t>(pages * layer_page_bytes(config, options));
    cache.layers.push_back({Buffer<std::byte>(bytes), Buffer<std::byte>(bytes)});
    cache.bytes += static_cast<std::int64_t>(2 * bytes);
  }
  return cache;
}

Workspace Workspace::create(const ModelConfig& config, const ModelOptions& options,
                            const Exec& exec) {
  const auto tokens = static_cast<std::size_t>(options.max_batch_tokens);
  const auto logit_rows = static_cast<std::size_t>(options.max_logit_rows);
  const auto hidden = static_cast<std::size_t>(config.hidden);
  const auto heads = static_cast<std::size_t>(config.num_heads);
  const auto kv_heads = static_cast<std::size_t>(config.num_kv_heads);
  const auto head_dim = static_cast<std::size_t>(config.head_dim);
  const auto top_k = static_cast<std::size_t>(config.top_k);
  const auto act_bytes = static_cast<std::size_t>(element_bytes(options.activation));
  return {
      .residual = Buffer<float>(tokens * hidden),
      .normed = Buffer<std::byte>(std::max(tokens, logit_rows) * hidden * act_bytes),
      .qkv = Buffer<float>(tokens * (heads + 2 * kv_heads) * head_dim),
      .q = Buffer<std::byte>(tokens * heads * head_dim * act_bytes),
      .attention = Buffer<std::byte>(tokens * heads * head_dim * act_bytes),
      .router_logits = Buffer<float>(tokens * static_cast<std::size_t>(config.num_experts)),
      .expert_ids = Buffer<std::int32_t>(tokens * top_k),
      .expert_weights = Buffer<float>(tokens * top_k),
      .logit_inputs = Buffer<float>(logit_rows * hidden),
      .positions = Buffer<std::int32_t>(tokens),
      .slots = {Buffer<std::int64_t>(tokens), Buffer<std::int64_t>(tokens)},
      .scratch = Buffer<std::byte>(static_cast<std::size_t>(scratch_bytes(config, options, exec))),
  };
}

std::int64_t Workspace::bytes() const {
  return static_cast<std::int64_t>(
      residual.size_bytes() + normed.size_bytes() + qkv.size_bytes() + q.size_bytes() +
      attention.size_bytes() + router_logits.size_bytes() + expert_ids.size_bytes() +
      expert_weights.size_bytes() + logit_inputs.size_bytes() + positions.size_bytes() +
      slots[0].size_bytes() + slots[1].size_bytes() + scratch.size_bytes());
}

}  // namespace nibble::model
