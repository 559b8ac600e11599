#include "api/commands/presets.h"

#include <array>
#include <nlohmann/json.hpp>

#include "api/commands/make_model.h"

namespace nibble::commands {
namespace {

using nlohmann::ordered_json;

constexpr std::array<const char*, 3> kNames = {"tiny", "gpt-oss-20b", "gpt-oss-120b"};

Preset gpt_oss(const std::string& name, std::int32_t layers, std::int32_t experts) {
  Preset preset;
  preset.name = name;
  model::ModelConfig& config = preset.config;
  config.architecture = "gpt_oss";
  config.hidden = config.intermediate = 2880;
  config.num_experts = experts;
  config.top_k = 4;
  config.num_heads = 64;
  config.num_kv_heads = 8;
  config.head_dim = 64;
  config.vocab = 201088;
  config.window = 128;
  config.max_position = 131072;
  config.rope = {.theta = 150000.0, .factor = 32.0, .original_max_position = 4096.0};
  config.has_mxfp4_experts = true;
  preset.ids = {.bos = 199998, .end_of_text = 199999, .end_of_turn = 200002, .call = 200012};
  set_layers(preset, layers);
  return preset;
}

// Small enough for tests; the vocabulary is the demo tokenizer's, so that it can be copied.
Preset tiny() {
  Preset preset = gpt_oss("tiny", 4, 8);
  model::ModelConfig& config = preset.config;
  config.hidden = 128;
  config.intermediate = 64;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.vocab = 4096;
  preset.ids = {.bos = 4087, .end_of_text = 4088, .end_of_turn = 4089, .call = 4095};
  return preset;
}

ordered_json rope_scaling(const kernels::YarnParams& rope) {
  return {
      {"rope_type", "yarn"},
      {"factor", rope.factor},
      {"beta_fast", rope.beta_fast},
      {"beta_slow", rope.beta_slow},
      {"original_max_position_embeddings", static_cast<std::int64_t>(rope.original_max_position)},
      {"truncate", rope.truncate}};
}

}  // namespace

std::vector<std::string> preset_names() { return {kNames.begin(), kNames.end()}; }

std::optional<Preset> find_preset(const std::string& name) {
  if (name == "tiny") {
    return tiny();
  }
  if (name == "gpt-oss-20b") {
    return gpt_oss(name, 24, 32);
  }
  if (name == "gpt-oss-120b") {
    return gpt_oss(name, 36, 128);
  }
  return std::nullopt;
}

void set_layers(Preset& preset, std::int32_t num_layers) {
  preset.config.num_layers = num_layers;
  preset.config.is_window_layer.assign(static_cast<std::size_t>(num_layers), false);
  for (std::size_t layer = 0; layer < preset.config.is_window_layer.size(); layer += 2) {
    preset.config.is_window_layer[layer] = true;
  }
}

std::string config_json(const Preset& preset) {
  const model::ModelConfig& config = preset.config;
  ordered_json out = {{"architectures", ordered_json::array({"GptOssForCausalLM"})},
                      {"model_type", "gpt_oss"},
                      {"attention_bias", true},
                      {"attention_dropout", 0.0},
                      {"eos_token_id", preset.ids.end_of_turn},
                      {"pad_token_id", preset.ids.end_of_text},
                      {"experts_per_token", config.top_k},
                      {"num_experts_per_tok", config.top_k},
                      {"num_local_experts", config.num_experts},
                      {"head_dim", config.head_dim},
                      {"hidden_act", "silu"},
                      {"hidden_size", config.hidden},
                      {"initial_context_length", 4096},
                      {"intermediate_size", config.intermediate},
                      {"max_position_embeddings", config.max_position},
                      {"num_attention_heads", config.num_heads},
                      {"num_hidden_layers", config.num_layers},
                      {"num_key_value_heads", config.num_kv_heads},
                      {"rms_norm_eps", 1e-5},
                      {"rope_theta", config.rope.theta},
                      {"rope_scaling", rope_scaling(config.rope)},
                      {"sliding_window", config.window},
                      {"swiglu_limit", 7.0},
                      {"tie_word_embeddings", false},
                      {"torch_dtype", "bfloat16"},
                      {"use_cache", true},
                      {"vocab_size", config.vocab}};
  ordered_json types = ordered_json::array();
  for (const bool is_window : config.is_window_layer) {
    types.push_back(is_window ? "sliding_attention" : "full_attention");
  }
  out["layer_types"] = std::move(types);
  out["quantization_config"] = {
      {"quant_method", "mxfp4"},
      {"modules_to_not_convert",
       ordered_json::array({"model.layers.*.self_attn", "model.layers.*.mlp.router",
                            "model.embed_tokens", "lm_head"})}};
  return out.dump(2) + "\n";
}

std::string generation_config_json(const Preset& preset) {
  const SpecialIds& ids = preset.ids;
  const ordered_json out = {
      {"bos_token_id", ids.bos},
      {"do_sample", true},
      {"eos_token_id", ordered_json::array({ids.end_of_turn, ids.end_of_text, ids.call})},
      {"pad_token_id", ids.end_of_text}};
  return out.dump(2) + "\n";
}

}  // namespace nibble::commands
