#include "model/tensor_list.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace nibble::model {
namespace {

using weights::TensorSpec;

constexpr std::int64_t kBlock = 32;  // values that share a scale
constexpr std::string_view kLayerPrefix = "model.layers.";

struct NamePair {
  std::string_view hugging_face;
  std::string_view open_ai;
};

constexpr std::array<NamePair, 3> kModelNames = {{{"model.embed_tokens.weight", "embedding.weight"},
                                                  {"model.norm.weight", "norm.scale"},
                                                  {"lm_head.weight", "unembedding.weight"}}};

constexpr std::array<NamePair, 21> kLayerNames = {
    {{"input_layernorm.weight", "attn.norm.scale"},
     {"self_attn.q_proj.weight", "attn.qkv.weight"},
     {"self_attn.k_proj.weight", "attn.qkv.weight"},
     {"self_attn.v_proj.weight", "attn.qkv.weight"},
     {"self_attn.q_proj.bias", "attn.qkv.bias"},
     {"self_attn.k_proj.bias", "attn.qkv.bias"},
     {"self_attn.v_proj.bias", "attn.qkv.bias"},
     {"self_attn.sinks", "attn.sinks"},
     {"self_attn.o_proj.weight", "attn.out.weight"},
     {"self_attn.o_proj.bias", "attn.out.bias"},
     {"post_attention_layernorm.weight", "mlp.norm.scale"},
     {"mlp.router.weight", "mlp.gate.weight"},
     {"mlp.router.bias", "mlp.gate.bias"},
     {"mlp.experts.gate_up_proj", "mlp.mlp1_weight"},
     {"mlp.experts.gate_up_proj_blocks", "mlp.mlp1_weight.blocks"},
     {"mlp.experts.gate_up_proj_scales", "mlp.mlp1_weight.scales"},
     {"mlp.experts.gate_up_proj_bias", "mlp.mlp1_bias"},
     {"mlp.experts.down_proj", "mlp.mlp2_weight"},
     {"mlp.experts.down_proj_blocks", "mlp.mlp2_weight.blocks"},
     {"mlp.experts.down_proj_scales", "mlp.mlp2_weight.scales"},
     {"mlp.experts.down_proj_bias", "mlp.mlp2_bias"}}};

// Collects the specs of one model under its naming.
class Lister {
 public:
  Lister(const ModelConfig& config, ExpertFormat experts) : config_(config), experts_(experts) {}

  std::vector<TensorSpec> list() {
    add_dense("model.embed_tokens.weight", {config_.vocab, config_.hidden});
    for (std::int32_t layer = 0; layer < config_.num_layers; ++layer) {
      prefix_ = fmt::format("{}{}.", kLayerPrefix, layer);
      add_attention();
      add_mlp();
    }
    prefix_.clear();
    add_dense("model.norm.weight", {config_.hidden});
    add_dense("lm_head.weight", {config_.vocab, config_.hidden});
    return std::move(specs_);
  }

 private:
  void add(std::string_view name, Shape shape, std::vector<DType> dtypes) {
    specs_.push_back({tensor_name(prefix_ + std::string(name), config_.naming), std::move(shape),
                      std::move(dtypes)});
  }
  void add_dense(std::string_view name, Shape shape) {
    add(name, std::move(shape), {DType::kBF16, DType::kF32});
  }
  void add_linear(const std::string& name, std::int64_t rows, std::int64_t columns) {
    add_dense(name + ".weight", {rows, columns});
    add_dense(name + ".bias", {rows});
  }

  void add_attention() {
    const std::int64_t q = std::int64_t{config_.num_heads} * config_.head_dim;
    const std::int64_t kv = std::int64_t{config_.num_kv_heads} * config_.head_dim;
    add_dense("input_layernorm.weight", {config_.hidden});
    if (config_.naming == Naming::kOpenAi) {
      add_linear("self_attn.q_proj", q + 2 * kv, config_.hidden);  // fused
    } else {
      add_linear("self_attn.q_proj", q, config_.hidden);
      add_linear("self_attn.k_proj", kv, config_.hidden);
      add_linear("self_attn.v_proj", kv, config_.hidden);
    }
    add_dense("self_attn.sinks", {config_.num_heads});
    add_linear("self_attn.o_proj", config_.hidden, q);
  }

  void add_mlp() {
    add_dense("post_attention_layernorm.weight", {config_.hidden});
    add_linear("mlp.router", config_.num_experts, config_.hidden);
    add_experts("mlp.experts.gate_up_proj", std::int64_t{2} * config_.intermediate, config_.hidden);
    add_experts("mlp.experts.down_proj", config_.hidden, config_.intermediate);
  }

  void add_experts(const std::string& name, std::int64_t rows, std::int64_t columns) {
    const std::int64_t experts = config_.num_experts;
    if (experts_ == ExpertFormat::kMxfp4) {
      add(name + "_blocks", {experts, rows, columns / kBlock, kBlock / 2}, {DType::kU8});
      add(name + "_scales", {experts, rows, columns / kBlock}, {DType::kU8, DType::kUE8M0});
    } else {
      add(name, {experts, columns, rows}, {DType::kBF16});
    }
    add_dense(name + "_bias", {experts, rows});
  }

  const ModelConfig& config_;
  ExpertFormat experts_;
  std::string prefix_;
  std::vector<TensorSpec> specs_;
};

template <std::size_t kCount>
std::string find_open_ai(const std::array<NamePair, kCount>& pairs, std::string_view name) {
  for (const NamePair& pair : pairs) {
    if (pair.hugging_face == name) {
      return std::string(pair.open_ai);
    }
  }
  return std::string(name);
}

}  // namespace

std::string tensor_name(const std::string& hf_name, Naming naming) {
  if (naming == Naming::kHuggingFace) {
    return hf_name;
  }
  if (!hf_name.starts_with(kLayerPrefix)) {
    return find_open_ai(kModelNames, hf_name);
  }
  const std::size_t dot = hf_name.find('.', kLayerPrefix.size());
  if (dot == std::string::npos) {
    return hf_name;
  }
  const std::string layer = hf_name.substr(kLayerPrefix.size(), dot - kLayerPrefix.size());
  return fmt::format("block.{}.{}", layer,
                     find_open_ai(kLayerNames, std::string_view(hf_name).substr(dot + 1)));
}

Result<ExpertFormat> detect_expert_format(const ModelConfig& config,
                                          const weights::Checkpoint& checkpoint) {
  const std::string stem = "model.layers.0.mlp.experts.gate_up_proj";
  const std::string blocks = tensor_name(stem + "_blocks", config.naming);
  const std::string plain = tensor_name(stem, config.naming);
  const bool has_blocks = checkpoint.find(blocks) != nullptr;
  const bool has_plain = checkpoint.find(plain) != nullptr;
  if (checkpoint.find(stem + "_weight_scale_2") != nullptr) {
    return error(Code::kUnsupported,
                 "{}: experts: want mxfp4 or bf16, found nvfp4 (`nibble quantize --format mxfp4` "
                 "converts them)",
                 checkpoint.folder());
  }
  if (has_blocks == has_plain) {
    return error(Code::kCorrupt, "{}: want one of tensors {} and {}, found {}", checkpoint.folder(),
                 blocks, plain, has_blocks ? "both" : "neither");
  }
  if (has_plain && config.naming == Naming::kOpenAi) {
    return error(Code::kUnsupported, "{}: experts under OpenAI's names: want {}, found {}",
                 checkpoint.folder(), blocks, plain);
  }
  return has_blocks ? ExpertFormat::kMxfp4 : ExpertFormat::kBf16Transposed;
}

std::vector<weights::TensorSpec> tensor_list(const ModelConfig& config, ExpertFormat experts) {
  return Lister(config, experts).list();
}

}  // namespace nibble::model
