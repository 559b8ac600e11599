#include "model/tensor_list.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace nibble::model {
namespace {

using weights::TensorSpec;

constexpr std::array<std::string_view, 3> kFormatNames = {"mxfp4", "bf16", "nvfp4"};
constexpr std::int64_t kMxBlock = 32;  // values that share a scale
constexpr std::int64_t kNvBlock = 16;
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

  // Kernels read biases of experts where they are mapped, as bf16.
  void add_experts(const std::string& name, std::int64_t rows, std::int64_t columns) {
    for (TensorSpec& part : stack_tensors({name, config_.num_experts, rows, columns}, experts_)) {
      add(part.name, std::move(part.shape), std::move(part.dtypes));
    }
    add(name + "_bias", {config_.num_experts, rows}, {DType::kBF16});
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

std::string_view expert_format_name(ExpertFormat format) {
  return kFormatNames[static_cast<std::size_t>(format)];
}

ExpertFormat configured_expert_format(const ModelConfig& config) {
  return config.has_mxfp4_experts   ? ExpertFormat::kMxfp4
         : config.has_nvfp4_experts ? ExpertFormat::kNvfp4
                                    : ExpertFormat::kBf16Transposed;
}

std::vector<TensorSpec> stack_tensors(const ExpertStack& stack, ExpertFormat format) {
  const auto& [stem, experts, rows, cols] = stack;
  switch (format) {
    case ExpertFormat::kBf16Transposed: return {{stem, {experts, cols, rows}, {DType::kBF16}}};
    case ExpertFormat::kMxfp4:
      return {{stem + "_blocks", {experts, rows, cols / kMxBlock, kMxBlock / 2}, {DType::kU8}},
              {stem + "_scales", {experts, rows, cols / kMxBlock}, {DType::kU8, DType::kUE8M0}}};
    case ExpertFormat::kNvfp4:
      return {{stem + "_weight", {experts, rows, cols / 2}, {DType::kU8}},
              {stem + "_weight_scale", {experts, rows, cols / kNvBlock}, {DType::kE4M3}},
              {stem + "_weight_scale_2", {experts}, {DType::kF32}}};
  }
  return {};
}

std::int64_t expert_bytes(std::int64_t elems, ExpertFormat format) {
  switch (format) {
    case ExpertFormat::kBf16Transposed: return 2 * elems;
    case ExpertFormat::kMxfp4: return elems / 2 + elems / kMxBlock;
    case ExpertFormat::kNvfp4: return elems / 2 + elems / kNvBlock;
  }
  return 0;
}

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
  const ExpertStack first{.stem = "model.layers.0.mlp.experts.gate_up_proj"};
  std::vector<std::string> wanted;
  std::vector<ExpertFormat> found;
  for (const ExpertFormat format :
       {ExpertFormat::kMxfp4, ExpertFormat::kBf16Transposed, ExpertFormat::kNvfp4}) {
    const std::string name = tensor_name(stack_tensors(first, format).front().name, config.naming);
    wanted.push_back(name);
    if (checkpoint.find(name) != nullptr) {
      found.push_back(format);
    }
  }
  if (found.size() != 1) {
    return error(Code::kCorrupt, "{}: want one of tensors {}, {} and {}, found {}",
                 checkpoint.folder(), wanted[0], wanted[1], wanted[2],
                 found.empty() ? "none" : "more");
  }
  if (found.front() != ExpertFormat::kMxfp4 && config.naming == Naming::kOpenAi) {
    return error(Code::kUnsupported, "{}: experts under OpenAI's names: want {}, found {}",
                 checkpoint.folder(), wanted[0], expert_format_name(found.front()));
  }
  return found.front();
}

std::vector<weights::TensorSpec> tensor_list(const ModelConfig& config, ExpertFormat experts) {
  return Lister(config, experts).list();
}

}  // namespace nibble::model
