#include "model/decode_path.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"

namespace nibble::model {
namespace {

using formats::Bf16;

constexpr std::int32_t kHeadDim = 64;

const Bf16* bf16(const DenseMatrix& matrix) { return static_cast<const Bf16*>(matrix.data); }

bool is_dense_bf16(const ModelArrays& arrays) {
  const auto is_bf16 = [](const DenseMatrix& matrix) { return matrix.dtype == DType::kBF16; };
  return is_bf16(arrays.embedding) && is_bf16(arrays.head) &&
         std::all_of(arrays.layers.begin(), arrays.layers.end(), [&](const LayerArrays& layer) {
           return is_bf16(layer.q) && is_bf16(layer.k) && is_bf16(layer.v) && is_bf16(layer.o) &&
                  is_bf16(layer.router);
         });
}

kernels::DecodeLayer decode_layer(const LayerArrays& from, const ModelConfig& config) {
  const std::int64_t q_elems = std::int64_t{config.num_heads} * kHeadDim * config.hidden;
  const std::int64_t kv_elems = std::int64_t{config.num_kv_heads} * kHeadDim * config.hidden;
  // The kernel reads q, k and v as one matrix; so they lie, since each is a multiple of the arena's
  // alignment.
  NIBBLE_CHECK(bf16(from.k) == bf16(from.q) + q_elems);
  NIBBLE_CHECK(bf16(from.v) == bf16(from.k) + kv_elems);
  return {.attention_norm = from.attention_norm,
          .qkv = bf16(from.q),
          .qkv_bias = from.qkv_bias,
          .sinks = from.sinks,
          .o = bf16(from.o),
          .o_bias = from.o_bias,
          .mlp_norm = from.mlp_norm,
          .router = bf16(from.router),
          .router_bias = from.router_bias,
          .gate_up = from.gate_up_tiles,
          .down = from.down_tiles};
}

}  // namespace

kernels::DecodeSizes decode_sizes(const ModelConfig& config, const ModelOptions& options,
                                  const Exec& exec) {
  return {.num_layers = config.num_layers,
          .hidden = config.hidden,
          .intermediate = config.intermediate,
          .num_experts = config.num_experts,
          .top_k = config.top_k,
          .num_heads = config.num_heads,
          .num_kv_heads = config.num_kv_heads,
          .page_size = options.page_size,
          .vocab = config.vocab,
          .num_blocks = exec.device == nullptr ? 0 : exec.device->num_sms};
}

Status decode_step_rule(const ModelArrays& host, const ModelConfig& config,
                        const ModelOptions& options, const Exec& exec) {
  if (options.decode == DecodePath::kGraph) {
    return error(Code::kUnsupported, "asked for");
  }
  if (options.activation != DType::kBF16 || options.kv_dtype != DType::kBF16 ||
      options.int8_experts) {
    return error(Code::kUnsupported, "want bf16 activations and cache");
  }
  if (!uses_expert_tiles(host, options.activation) || !is_dense_bf16(host)) {
    return error(Code::kUnsupported, "want MXFP4 experts and bf16 dense weights");
  }
  if (config.head_dim != kHeadDim) {
    return error(Code::kUnsupported, "want heads of {} channels, found {}", kHeadDim,
                 config.head_dim);
  }
  return kernels::decode_step_supports(decode_sizes(config, options, exec), exec);
}

Status DecodeStep::decide(const ModelArrays& host, const ModelConfig& config,
                          const ModelOptions& options, const Exec& exec) {
  sizes_ = decode_sizes(config, options, exec);
  rule_ = decode_step_rule(host, config, options, exec);
  is_decided_ = true;
  if (options.decode == DecodePath::kPersistent && !rule_.ok()) {
    return error(rule_.code(), "decode path persistent: {}", rule_.message());
  }
  return {};
}

std::string DecodeStep::description() const {
  if (!is_decided_) {
    return {};
  }
  return rule_.ok() ? kernels::decode_step_instances().back().info.name
                    : "graph: " + std::string(rule_.message());
}

Status DecodeStep::run(Device& device, const ModelConfig& config, DecodeParts parts,
                       Status (*kernel)(const kernels::DecodeStepArgs& args, const Exec& exec),
                       const Exec& exec) {
  constexpr std::uint8_t kHoleByte = kernels::kDecodeHole & 0xFFU;
  NIBBLE_RETURN_IF_ERROR(
      device.fill(exchange_, kHoleByte, kernels::decode_step_exchange_bytes(sizes_), exec.stream));
  layers_.clear();
  for (std::size_t index = 0; index < parts.arrays.layers.size(); ++index) {
    kernels::DecodeLayer layer = decode_layer(parts.arrays.layers[index], config);
    const bool is_window = config.is_window_layer[index];
    layer.k_cache = reinterpret_cast<Bf16*>(parts.cache.layers[index].k);
    layer.v_cache = reinterpret_cast<Bf16*>(parts.cache.layers[index].v);
    layer.cache = static_cast<int>(is_window ? CacheGroup::kWindow : CacheGroup::kFull);
    layer.window = is_window ? config.window : 0;
    layers_.push_back(layer);
  }
  return kernel({.sizes = sizes_,
                 .layers = layers_,
                 .caches = {{parts.inputs.sequences[0], parts.inputs.slots[0]},
                            {parts.inputs.sequences[1], parts.inputs.slots[1]}},
                 .embedding = bf16(parts.arrays.embedding),
                 .head = bf16(parts.arrays.head),
                 .final_norm = parts.arrays.final_norm,
                 .inv_freq = parts.arrays.inv_freq,
                 .token_id = parts.inputs.token_ids,
                 .position = parts.inputs.positions,
                 .logits = parts.work.logits,
                 .bad_rows = parts.work.bad_rows,
                 .lost = parts.work.bad_rows + config.num_layers,
                 .exchange = exchange_,
                 .eps = config.rms_norm_eps,
                 .concentration = parts.concentration,
                 .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
                 .alpha = config.swiglu_alpha,
                 .limit = config.swiglu_limit},
                exec);
}

}  // namespace nibble::model
