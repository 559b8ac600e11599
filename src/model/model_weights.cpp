#include "model/model_weights.h"

#include <cmath>
#include <cstring>
#include <span>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "formats/bf16.h"

namespace nibble::model {
namespace {

using formats::Bf16;

// Takes tensors that `match` has already accepted: names, shapes and dtypes are known to be right.
class TensorTaker {
 public:
  TensorTaker(const ModelConfig& config, ModelWeights& model) : config_(config), model_(model) {}

  const weights::Checkpoint::Tensor& tensor(const std::string& hf_name) const {
    const auto* found = model_.checkpoint.find(tensor_name(hf_name, config_.naming));
    NIBBLE_CHECK(found != nullptr);
    return *found;
  }

  DenseMatrix matrix(const std::string& hf_name, std::int64_t first_row = 0) const {
    const TensorView& view = tensor(hf_name).view;
    const std::int64_t row_bytes = view.shape.back() * dtype_bits(view.dtype) / 8;
    return {static_cast<const std::byte*>(view.data) + first_row * row_bytes, view.dtype};
  }

  Buffer<float> vector(const std::string& hf_name) const {
    Buffer<float> out(static_cast<std::size_t>(tensor(hf_name).view.num_elems()));
    widen(hf_name, out.span());
    return out;
  }

  void widen(const std::string& hf_name, std::span<float> out) const {
    const TensorView& view = tensor(hf_name).view;
    NIBBLE_CHECK(view.num_elems() == static_cast<std::int64_t>(out.size()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (view.dtype == DType::kF32) {
        std::memcpy(&out[i], static_cast<const std::byte*>(view.data) + 4 * i, 4);
      } else {
        Bf16 value;
        std::memcpy(&value, static_cast<const std::byte*>(view.data) + 2 * i, 2);
        out[i] = bf16_to_f32(value);
      }
    }
    model_.owned_bytes += static_cast<std::int64_t>(out.size_bytes());
  }

  kernels::ExpertMatrix experts(const std::string& hf_name, OwnedExperts& owned) const {
    kernels::ExpertMatrix out;
    out.bias = static_cast<const Bf16*>(tensor(hf_name + "_bias").view.data);
    switch (model_.expert_format) {
      case ExpertFormat::kMxfp4:
        out.weight = kernels::Mxfp4Rows{bytes(hf_name + "_blocks"), bytes(hf_name + "_scales")};
        break;
      case ExpertFormat::kBf16Transposed:
        owned.rows = transposed_rows(tensor(hf_name));
        out.weight = kernels::Bf16Rows{owned.rows.data()};
        break;
      case ExpertFormat::kNvfp4:
        owned.globals = vector(hf_name + "_weight_scale_2");
        out.weight = kernels::Nvfp4Rows{bytes(hf_name + "_weight"),
                                        bytes(hf_name + "_weight_scale"), owned.globals.data()};
        break;
    }
    return out;
  }

 private:
  const std::uint8_t* bytes(const std::string& hf_name) const {
    return static_cast<const std::uint8_t*>(tensor(hf_name).view.data);
  }

  // [experts, in, out] as `save_pretrained` writes it, to [experts, out, in].
  Buffer<Bf16> transposed_rows(const weights::Checkpoint::Tensor& source) const {
    const Shape& shape = source.view.shape;
    const auto* values = static_cast<const Bf16*>(source.view.data);
    const std::int64_t inputs = shape[1];
    const std::int64_t outputs = shape[2];
    Buffer<Bf16> rows(static_cast<std::size_t>(source.view.num_elems()));
    for (std::int64_t expert = 0; expert < shape[0]; ++expert) {
      const Bf16* from = values + expert * inputs * outputs;
      Bf16* to = rows.data() + expert * inputs * outputs;
      for (std::int64_t in = 0; in < inputs; ++in) {
        for (std::int64_t out = 0; out < outputs; ++out) {
          to[out * inputs + in] = from[in * outputs + out];
        }
      }
    }
    model_.owned_bytes += static_cast<std::int64_t>(rows.size_bytes());
    model_.checkpoint.drop(source);
    return rows;
  }

  const ModelConfig& config_;
  ModelWeights& model_;
};

// OpenAI's files hold q, k and v as row ranges of one tensor.
void take_qkv(const TensorTaker& take, const ModelConfig& config, const std::string& prefix,
              LayerWeights& layer) {
  const std::int64_t q_rows = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t kv_rows = std::int64_t{config.num_kv_heads} * config.head_dim;
  const bool is_fused = config.naming == Naming::kOpenAi;
  layer.q = take.matrix(prefix + "q_proj.weight");
  layer.k = take.matrix(prefix + "k_proj.weight", is_fused ? q_rows : 0);
  layer.v = take.matrix(prefix + "v_proj.weight", is_fused ? q_rows + kv_rows : 0);
  layer.qkv_bias = Buffer<float>(static_cast<std::size_t>(q_rows + 2 * kv_rows));
  const std::span<float> bias = layer.qkv_bias.span();
  if (is_fused) {
    take.widen(prefix + "q_proj.bias", bias);
    return;
  }
  const auto q = static_cast<std::size_t>(q_rows);
  const auto kv = static_cast<std::size_t>(kv_rows);
  take.widen(prefix + "q_proj.bias", bias.subspan(0, q));
  take.widen(prefix + "k_proj.bias", bias.subspan(q, kv));
  take.widen(prefix + "v_proj.bias", bias.subspan(q + kv, kv));
}

LayerWeights take_layer(const TensorTaker& take, const ModelConfig& config, std::int32_t index) {
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  LayerWeights layer;
  layer.attention_norm = take.vector(prefix + "input_layernorm.weight");
  take_qkv(take, config, prefix + "self_attn.", layer);
  layer.sinks = take.vector(prefix + "self_attn.sinks");
  layer.o = take.matrix(prefix + "self_attn.o_proj.weight");
  layer.o_bias = take.vector(prefix + "self_attn.o_proj.bias");
  layer.mlp_norm = take.vector(prefix + "post_attention_layernorm.weight");
  layer.router = take.matrix(prefix + "mlp.router.weight");
  layer.router_bias = take.vector(prefix + "mlp.router.bias");
  layer.gate_up = take.experts(prefix + "mlp.experts.gate_up_proj", layer.gate_up_owned);
  layer.down = take.experts(prefix + "mlp.experts.down_proj", layer.down_owned);
  return layer;
}

// A scale of zero, Inf or NaN would make a whole expert meaningless.
Status check_globals(const OwnedExperts& experts, const std::string& stem,
                     const weights::Checkpoint& checkpoint) {
  for (const float global : experts.globals.span()) {
    if (!(global > 0.0F) || std::isinf(global)) {
      return error(Code::kCorrupt, "{}: tensor {}_weight_scale_2: want positive numbers, found {}",
                   checkpoint.folder(), stem, global);
    }
  }
  return {};
}

Status check_layer(const LayerWeights& layer, std::int32_t index,
                   const weights::Checkpoint& checkpoint) {
  const std::string prefix = fmt::format("model.layers.{}.mlp.experts.", index);
  NIBBLE_RETURN_IF_ERROR(check_globals(layer.gate_up_owned, prefix + "gate_up_proj", checkpoint));
  return check_globals(layer.down_owned, prefix + "down_proj", checkpoint);
}

// Fills `model` from its checkpoint, which fits the config.
Status take_tensors(const ModelConfig& config, ModelWeights& model) {
  const TensorTaker take(config, model);
  model.embedding = take.matrix("model.embed_tokens.weight");
  model.head = take.matrix("lm_head.weight");
  model.final_norm = take.vector("model.norm.weight");
  model.layers.reserve(static_cast<std::size_t>(config.num_layers));
  for (std::int32_t index = 0; index < config.num_layers; ++index) {
    model.layers.push_back(take_layer(take, config, index));
    NIBBLE_RETURN_IF_ERROR(check_layer(model.layers.back(), index, model.checkpoint));
  }
  return {};
}

}  // namespace

Result<ModelWeights> load_weights(const std::string& folder, const ModelConfig& config) {
  NIBBLE_ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, weights::Checkpoint::open(folder));
  NIBBLE_ASSIGN_OR_RETURN(const ExpertFormat format, detect_expert_format(config, checkpoint));
  const weights::MatchReport report = weights::match(tensor_list(config, format), checkpoint);
  if (!report.ok()) {
    return error(Code::kCorrupt, "{}", report.summary(folder));
  }
  ModelWeights model{.checkpoint = std::move(checkpoint), .expert_format = format};
  NIBBLE_RETURN_IF_ERROR(take_tensors(config, model));
  return model;
}

Result<ModelWeights> make_dummy_weights(const ModelConfig& config, std::uint64_t seed) {
  NIBBLE_ASSIGN_OR_RETURN(DummyTensors dummy, DummyTensors::create(config, seed));
  ModelWeights model{.checkpoint = dummy.checkpoint(), .expert_format = ExpertFormat::kMxfp4};
  model.dummy = std::move(dummy);
  NIBBLE_RETURN_IF_ERROR(take_tensors(config, model));
  return model;
}

}  // namespace nibble::model
