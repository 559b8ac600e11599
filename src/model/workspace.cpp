#include "model/workspace.h"

#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/moe/moe.h"
#include "kernels/moe/moe_tiles.h"
#include "model/sample_block.h"
#include "model/step_inputs.h"

namespace nibble::model {
namespace {

std::int64_t element_bytes(DType dtype) { return dtype_bits(dtype) / 8; }

// Rows of head_dim elements in a page.
std::int64_t page_rows(const ModelConfig& config, const ModelOptions& options) {
  return std::int64_t{config.num_kv_heads} * options.page_size;
}
std::int64_t row_bytes(const ModelConfig& config, const ModelOptions& options) {
  return config.head_dim * element_bytes(options.kv_dtype);
}
bool has_scales(const ModelOptions& options) { return options.kv_dtype == DType::kE4M3; }

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
                             .x_dtype = options.activation,
                             .inputs = expert_inputs(options)};
  const kernels::MoeTilesArgs tiles{.num_tokens = options.max_batch_tokens,
                                    .hidden = config.hidden,
                                    .intermediate = config.intermediate,
                                    .num_experts = config.num_experts,
                                    .top_k = config.top_k};
  return std::max({kernels::attention_workspace_bytes(attention, options.max_batch_tokens,
                                                      options.max_position, exec),
                   kernels::moe_workspace_bytes(moe, options.max_batch_tokens),
                   exec.device == nullptr ? 0 : kernels::moe_tiles_workspace_bytes(tiles)});
}

}  // namespace

kernels::ExpertInputs expert_inputs(const ModelOptions& options) {
  return options.int8_experts ? kernels::ExpertInputs::kInt8 : kernels::ExpertInputs::kGiven;
}

double cache_elem_bytes(const ModelConfig& config, DType kv_dtype) {
  const double scale_bytes = kv_dtype == DType::kE4M3 ? 1.0 / config.head_dim : 0.0;
  return static_cast<double>(element_bytes(kv_dtype)) + scale_bytes;
}

std::int64_t page_bytes(const ModelConfig& config, const ModelOptions& options, CacheGroup group) {
  std::int64_t layers = 0;
  for (std::size_t layer = 0; layer < config.is_window_layer.size(); ++layer) {
    layers += group_of(config, layer) == group ? 1 : 0;
  }
  const std::int64_t scale_bytes = has_scales(options) ? 1 : 0;
  return 2 * layers * page_rows(config, options) * (row_bytes(config, options) + scale_bytes);
}

std::int64_t device_step_bytes(const ModelConfig& config, const ModelOptions& options) {
  const DeviceFacts any;
  const Exec exec{.device = &any};
  Arena arena;
  (void)Workspace::lay_out(config, options, exec, arena);
  (void)StepInputs::lay_out(step_limits(options.max_batch_tokens, options.max_logit_rows,
                                        options.max_position, options.page_size),
                            arena);
  return arena.bytes();
}

KvCache KvCache::lay_out(const ModelConfig& config, const ModelOptions& options, Arena& arena) {
  KvCache cache;
  for (std::size_t layer = 0; layer < config.is_window_layer.size(); ++layer) {
    const std::int64_t pages = options.num_pages[static_cast<int>(group_of(config, layer))];
    const std::int64_t rows = pages * page_rows(config, options);
    const std::int64_t bytes = rows * row_bytes(config, options);
    LayerCache& layer_cache = cache.layers.emplace_back();
    layer_cache.k = arena.take<std::byte>(bytes);
    layer_cache.v = arena.take<std::byte>(bytes);
    if (has_scales(options)) {
      layer_cache.k_scales = arena.take<std::uint8_t>(rows);
      layer_cache.v_scales = arena.take<std::uint8_t>(rows);
    }
  }
  return cache;
}

Workspace Workspace::lay_out(const ModelConfig& config, const ModelOptions& options,
                             const Exec& exec, Arena& arena) {
  const std::int64_t tokens = options.max_batch_tokens;
  const std::int64_t logit_rows = options.max_logit_rows;
  const std::int64_t q_width = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t kv_width = std::int64_t{config.num_kv_heads} * config.head_dim;
  const std::int64_t act_bytes = element_bytes(options.activation);
  Workspace out;
  out.residual = arena.take<float>(tokens * config.hidden);
  out.normed = arena.take<std::byte>(std::max(tokens, logit_rows) * config.hidden * act_bytes);
  out.qkv = arena.take<float>(tokens * (q_width + 2 * kv_width));
  out.q = arena.take<std::byte>(tokens * q_width * act_bytes);
  out.attention = arena.take<std::byte>(tokens * q_width * act_bytes);
  out.router_logits = arena.take<float>(tokens * config.num_experts);
  out.expert_ids = arena.take<std::int32_t>(tokens * config.top_k);
  out.expert_weights = arena.take<float>(tokens * config.top_k);
  out.logit_inputs = arena.take<float>(logit_rows * config.hidden);
  const std::int64_t scratch = scratch_bytes(config, options, exec);
  std::byte* const scratch_at = arena.take<std::byte>(scratch);
  if (scratch_at != nullptr) {
    out.scratch = {scratch_at, static_cast<std::size_t>(scratch)};
  }
  if (exec.device != nullptr) {
    out.slice_offs = arena.take<std::int32_t>(config.num_experts + 1);
    out.gather = arena.take<std::int32_t>(tokens * config.top_k);
    out.scatter = arena.take<std::int32_t>(tokens * config.top_k);
    out.logits = arena.take<float>(logit_rows * config.vocab);
    out.bad_rows = arena.take<std::int32_t>(config.num_layers + 1);
    out.sample_block = arena.take<std::byte>(SampleBlock::bytes(options.max_logit_rows));
    out.sampled = arena.take<std::int32_t>(logit_rows);
  }
  return out;
}

}  // namespace nibble::model
