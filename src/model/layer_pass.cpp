#include "model/layer_pass.h"

#include <cmath>
#include <vector>

#include "base/error.h"
#include "tensor/device.h"

namespace nibble::model {

using kernels::GemmPart;

Status LayerPass::run() {
  const ModelConfig& config = parts_.config;
  const std::int64_t residual_elems = std::int64_t{step_.rows} * config.hidden;
  NIBBLE_RETURN_IF_ERROR(embed());
  for (std::size_t index = 0; index < parts_.arrays.layers.size(); ++index) {
    NIBBLE_RETURN_IF_ERROR(attention_block(index));
    NIBBLE_RETURN_IF_ERROR(tap(TapPlace::kAttention, index, parts_.work.residual, residual_elems));
    NIBBLE_RETURN_IF_ERROR(moe_block(index));
    NIBBLE_RETURN_IF_ERROR(tap(TapPlace::kExperts, index, parts_.work.residual, residual_elems));
  }
  return head();
}

Status LayerPass::embed() {
  return parts_.kernels.gather_rows({.table = parts_.arrays.embedding.data,
                                     .ids = step_.inputs.token_ids,
                                     .out = parts_.work.residual,
                                     .rows = step_.rows,
                                     .cols = parts_.config.hidden,
                                     .table_rows = parts_.config.vocab,
                                     .dtype = parts_.arrays.embedding.dtype},
                                    parts_.exec);
}

Status LayerPass::tap(TapPlace place, std::size_t layer, float* values, std::int64_t count) {
  if (!parts_.tap) {
    return {};
  }
  const auto index = static_cast<std::int32_t>(layer);
  if (parts_.device == nullptr) {
    parts_.tap(place, index, {values, static_cast<std::size_t>(count)});
    return {};
  }
  Device& device = *parts_.device;
  const Stream stream = parts_.exec.stream;
  std::vector<float> host(static_cast<std::size_t>(count));
  const auto bytes = static_cast<std::int64_t>(count * sizeof(float));
  NIBBLE_RETURN_IF_ERROR(device.copy(host.data(), values, bytes, stream));
  NIBBLE_RETURN_IF_ERROR(device.wait(stream));
  parts_.tap(place, index, host);
  NIBBLE_RETURN_IF_ERROR(device.copy(values, host.data(), bytes, stream));
  return device.wait(stream);
}

Status LayerPass::norm(const float* x, const float* weight, std::int32_t rows) {
  return parts_.kernels.rms_norm({.x = x,
                                  .weight = weight,
                                  .out = parts_.work.normed,
                                  .rows = rows,
                                  .cols = parts_.config.hidden,
                                  .eps = parts_.config.rms_norm_eps,
                                  .out_dtype = parts_.options.activation},
                                 parts_.exec);
}

Status LayerPass::project(std::span<const GemmPart> parts, const Product& product) {
  std::int64_t width = 0;
  for (const GemmPart& part : parts) {
    width += part.n;
  }
  return parts_.kernels.gemm({.x = product.x,
                              .out = product.out,
                              .parts = parts,
                              .rows = product.rows,
                              .k = product.k,
                              .out_stride = width,
                              .x_dtype = parts_.options.activation,
                              .weight_dtype = product.weight_dtype,
                              .accumulate = product.accumulate},
                             parts_.exec);
}

Status LayerPass::attention_block(std::size_t index) {
  const ModelConfig& config = parts_.config;
  const Workspace& work = parts_.work;
  const LayerArrays& layer = parts_.arrays.layers[index];
  NIBBLE_RETURN_IF_ERROR(norm(work.residual, layer.attention_norm, step_.rows));
  const std::int32_t q_width = config.num_heads * config.head_dim;
  const std::int32_t kv_width = config.num_kv_heads * config.head_dim;
  const float* bias = layer.qkv_bias;
  const GemmPart qkv[] = {{layer.q.data, bias, q_width},
                          {layer.k.data, bias + q_width, kv_width},
                          {layer.v.data, bias + q_width + kv_width, kv_width}};
  NIBBLE_RETURN_IF_ERROR(project(qkv, {.x = work.normed,
                                       .out = work.qkv,
                                       .rows = step_.rows,
                                       .k = config.hidden,
                                       .weight_dtype = layer.q.dtype}));
  NIBBLE_RETURN_IF_ERROR(attend(index));
  const GemmPart o[] = {{layer.o.data, layer.o_bias, config.hidden}};
  return project(o, {.x = work.attention,
                     .out = work.residual,
                     .rows = step_.rows,
                     .k = q_width,
                     .weight_dtype = layer.o.dtype,
                     .accumulate = true});
}

Status LayerPass::attend(std::size_t index) {
  const ModelConfig& config = parts_.config;
  const ModelOptions& options = parts_.options;
  const Workspace& work = parts_.work;
  const bool is_window = config.is_window_layer[index];
  const int group = static_cast<int>(is_window ? CacheGroup::kWindow : CacheGroup::kFull);
  const LayerCache& cache = parts_.cache.layers[index];
  NIBBLE_RETURN_IF_ERROR(parts_.kernels.rope_store({.qkv = work.qkv,
                                                    .positions = step_.inputs.positions,
                                                    .slots = step_.inputs.slots[group],
                                                    .inv_freq = parts_.arrays.inv_freq,
                                                    .q_out = work.q,
                                                    .k_cache = cache.k,
                                                    .v_cache = cache.v,
                                                    .k_scales = cache.k_scales,
                                                    .v_scales = cache.v_scales,
                                                    .rows = step_.rows,
                                                    .num_heads = config.num_heads,
                                                    .num_kv_heads = config.num_kv_heads,
                                                    .head_dim = config.head_dim,
                                                    .page_size = options.page_size,
                                                    .concentration = parts_.concentration,
                                                    .q_dtype = options.activation,
                                                    .kv_dtype = options.kv_dtype},
                                                   parts_.exec));
  return parts_.kernels.attention({.q = work.q,
                                   .k_cache = cache.k,
                                   .v_cache = cache.v,
                                   .k_scales = cache.k_scales,
                                   .v_scales = cache.v_scales,
                                   .sinks = parts_.arrays.layers[index].sinks,
                                   .out = work.attention,
                                   .sequences = {step_.host_inputs.sequences[group],
                                                 static_cast<std::size_t>(step_.num_sequences)},
                                   .device_sequences = step_.inputs.sequences[group],
                                   .num_heads = config.num_heads,
                                   .num_kv_heads = config.num_kv_heads,
                                   .head_dim = config.head_dim,
                                   .page_size = options.page_size,
                                   .window = is_window ? config.window : 0,
                                   .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
                                   .q_dtype = options.activation,
                                   .kv_dtype = options.kv_dtype,
                                   .workspace = work.scratch},
                                  parts_.exec);
}

Status LayerPass::moe_block(std::size_t index) {
  const ModelConfig& config = parts_.config;
  const Workspace& work = parts_.work;
  const LayerArrays& layer = parts_.arrays.layers[index];
  NIBBLE_RETURN_IF_ERROR(norm(work.residual, layer.mlp_norm, step_.rows));
  NIBBLE_RETURN_IF_ERROR(route(index));
  if (layer.gate_up_tiles.values != nullptr) {
    return sorted_experts(layer);
  }
  return parts_.kernels.moe({.x = work.normed,
                             .ids = work.expert_ids,
                             .weights = work.expert_weights,
                             .out = work.residual,
                             .gate_up = layer.gate_up,
                             .down = layer.down,
                             .num_tokens = step_.rows,
                             .hidden = config.hidden,
                             .intermediate = config.intermediate,
                             .num_experts = config.num_experts,
                             .top_k = config.top_k,
                             .alpha = config.swiglu_alpha,
                             .limit = config.swiglu_limit,
                             .x_dtype = parts_.options.activation,
                             .inputs = expert_inputs(parts_.options),
                             .workspace = work.scratch},
                            parts_.exec);
}

Status LayerPass::route(std::size_t index) {
  const ModelConfig& config = parts_.config;
  const Workspace& work = parts_.work;
  const LayerArrays& layer = parts_.arrays.layers[index];
  const GemmPart router[] = {{layer.router.data, layer.router_bias, config.num_experts}};
  NIBBLE_RETURN_IF_ERROR(project(router, {.x = work.normed,
                                          .out = work.router_logits,
                                          .rows = step_.rows,
                                          .k = config.hidden,
                                          .weight_dtype = layer.router.dtype}));
  NIBBLE_RETURN_IF_ERROR(tap(TapPlace::kRouter, index, work.router_logits,
                             std::int64_t{step_.rows} * config.num_experts));
  const Status routed =
      parts_.kernels.top_k({.logits = work.router_logits,
                            .ids = work.expert_ids,
                            .weights = work.expert_weights,
                            .rows = step_.rows,
                            .num_valid_rows = step_.rows,
                            .num_experts = config.num_experts,
                            .top_k = config.top_k,
                            .bad_row = parts_.device == nullptr ? nullptr : work.bad_rows + index},
                           parts_.exec);
  return routed.ok() ? routed : error(routed.code(), "layer {}: {}", index, routed.message());
}

Status LayerPass::sorted_experts(const LayerArrays& layer) {
  const ModelConfig& config = parts_.config;
  const Workspace& work = parts_.work;
  NIBBLE_RETURN_IF_ERROR(parts_.kernels.sort_rows({.ids = work.expert_ids,
                                                   .slice_offs = work.slice_offs,
                                                   .gather = work.gather,
                                                   .scatter = work.scatter,
                                                   .num_tokens = step_.rows,
                                                   .top_k = config.top_k,
                                                   .num_experts = config.num_experts},
                                                  parts_.exec));
  return parts_.kernels.moe_tiles({.x = reinterpret_cast<const formats::Bf16*>(work.normed),
                                   .slice_offs = work.slice_offs,
                                   .gather = work.gather,
                                   .scatter = work.scatter,
                                   .weights = work.expert_weights,
                                   .out = work.residual,
                                   .gate_up = layer.gate_up_tiles,
                                   .down = layer.down_tiles,
                                   .num_tokens = step_.rows,
                                   .hidden = config.hidden,
                                   .intermediate = config.intermediate,
                                   .num_experts = config.num_experts,
                                   .top_k = config.top_k,
                                   .alpha = config.swiglu_alpha,
                                   .limit = config.swiglu_limit,
                                   .workspace = work.scratch},
                                  parts_.exec);
}

Status LayerPass::head() {
  const ModelConfig& config = parts_.config;
  if (step_.num_logit_rows == 0) {
    return {};
  }
  NIBBLE_RETURN_IF_ERROR(parts_.kernels.gather_rows({.table = parts_.work.residual,
                                                     .ids = step_.inputs.logit_rows,
                                                     .out = parts_.work.logit_inputs,
                                                     .rows = step_.num_logit_rows,
                                                     .cols = config.hidden,
                                                     .table_rows = step_.rows,
                                                     .dtype = DType::kF32},
                                                    parts_.exec));
  NIBBLE_RETURN_IF_ERROR(
      norm(parts_.work.logit_inputs, parts_.arrays.final_norm, step_.num_logit_rows));
  const GemmPart parts[] = {{parts_.arrays.head.data, nullptr, config.vocab}};
  NIBBLE_RETURN_IF_ERROR(project(parts, {.x = parts_.work.normed,
                                         .out = step_.logits,
                                         .rows = step_.num_logit_rows,
                                         .k = config.hidden,
                                         .weight_dtype = parts_.arrays.head.dtype}));
  return tap(TapPlace::kHead, parts_.arrays.layers.size(), step_.logits,
             std::int64_t{step_.num_logit_rows} * config.vocab);
}

}  // namespace nibble::model
