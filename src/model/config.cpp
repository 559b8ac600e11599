#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "model/json_fields.h"

namespace nibble::model {
namespace {

using nlohmann::json;

// Far above every published model, and small enough that products of any four of them, as tensor
// shapes multiply them, stay below 2^63.
constexpr IntRange kLayers = {1, 1024};
constexpr IntRange kWidth = {32, 1 << 16};
constexpr IntRange kExperts = {1, 4096};
constexpr IntRange kHeads = {1, 4096};
constexpr IntRange kHeadDim = {2, 1024};
constexpr IntRange kVocab = {1, 1 << 24};
constexpr IntRange kPositions = {1, 1 << 30};
constexpr NumberRange kTheta = {1.0, 1e12};
constexpr NumberRange kFactor = {1.0, 1e6};
constexpr NumberRange kBeta = {1e-3, 1e6};
constexpr NumberRange kEps = {1e-12, 1e-1};
constexpr NumberRange kLimit = {1e-3, 1e6};

// The fields that both spellings name alike.
void read_shape(JsonFields& fields, ModelConfig& config) {
  config.architecture = "gpt_oss";
  config.num_layers = fields.integer("num_hidden_layers", kLayers);
  config.hidden = fields.integer("hidden_size", kWidth);
  config.intermediate = fields.integer("intermediate_size", kWidth);
  config.num_heads = fields.integer("num_attention_heads", kHeads);
  config.num_kv_heads = fields.integer("num_key_value_heads", kHeads);
  config.head_dim = fields.integer("head_dim", kHeadDim);
  config.vocab = fields.integer("vocab_size", kVocab);
  config.window = fields.integer("sliding_window", kPositions);
  config.swiglu_limit = static_cast<float>(fields.number_or("swiglu_limit", 7.0, kLimit));
}

void default_layer_types(ModelConfig& config) {
  config.is_window_layer.resize(static_cast<std::size_t>(config.num_layers));
  for (std::size_t layer = 0; layer < config.is_window_layer.size(); ++layer) {
    config.is_window_layer[layer] = layer % 2 == 0;
  }
}

void read_layer_types(JsonFields& fields, ModelConfig& config) {
  if (!fields.has("layer_types")) {
    default_layer_types(config);
    return;
  }
  const json& types = fields.at("layer_types");
  if (!types.is_array() || types.size() != static_cast<std::size_t>(config.num_layers)) {
    fields.fail("layer_types", fmt::format("a list of num_hidden_layers = {}", config.num_layers));
    return;
  }
  for (const json& type : types) {
    const bool is_window = type == "sliding_attention";
    if (!is_window && type != "full_attention") {
      fields.fail("layer_types", "sliding_attention or full_attention in each place",
                  type.is_string() ? "another name" : "no string");
      return;
    }
    config.is_window_layer.push_back(is_window);
  }
}

void read_top_k(JsonFields& fields, ModelConfig& config) {
  const bool has_both = fields.has("num_experts_per_tok") && fields.has("experts_per_token");
  const char* name =
      fields.has("num_experts_per_tok") ? "num_experts_per_tok" : "experts_per_token";
  config.top_k = fields.integer(name, kExperts);
  if (has_both && fields.integer("experts_per_token", kExperts) != config.top_k) {
    fields.fail("experts_per_token", fmt::format("num_experts_per_tok = {}", config.top_k));
  }
}

// `scaling` is "rope_scaling" or "rope_parameters".
void read_yarn(const std::string& path, JsonFields& fields, const char* scaling,
               kernels::YarnParams& rope) {
  if (!fields.has(scaling)) {
    return;
  }
  if (!fields.at(scaling).is_object()) {
    fields.fail(scaling, "an object");
    return;
  }
  JsonFields inner(path, fields.at(scaling), std::string(scaling) + ".");
  const char* type_name = inner.has("rope_type") ? "rope_type" : "type";
  const std::string type = inner.text(type_name);
  rope.theta = inner.number_or("rope_theta", rope.theta, kTheta);
  if (inner.status().ok() && type != "yarn" && type != "default") {
    inner.fail(type_name, "yarn or default", Code::kUnsupported);
  }
  if (type == "yarn") {
    rope.factor = inner.number("factor", kFactor);
    rope.beta_fast = inner.number_or("beta_fast", 32.0, kBeta);
    rope.beta_slow = inner.number_or("beta_slow", 1.0, kBeta);
    rope.original_max_position = inner.integer("original_max_position_embeddings", kPositions);
    rope.truncate = inner.boolean_or("truncate", true);  // the reference implementation's default
    for (const char* name : {"attention_factor", "mscale", "mscale_all_dim"}) {
      if (inner.has(name)) {
        inner.fail(name, "no such field (0.1 ln(factor) + 1 is used)", Code::kUnsupported);
      }
    }
  }
  fields.fail(inner.status());
}

void read_rope(const std::string& path, JsonFields& fields, ModelConfig& config) {
  const bool is_new = fields.has("rope_parameters");
  if (is_new && fields.has("rope_scaling")) {
    fields.fail("rope_scaling", "no such field beside rope_parameters");
    return;
  }
  const bool has_inner_theta = is_new && fields.at("rope_parameters").is_object() &&
                               fields.at("rope_parameters").contains("rope_theta");
  if (!has_inner_theta) {
    config.rope.theta = fields.number("rope_theta", kTheta);
  }
  read_yarn(path, fields, is_new ? "rope_parameters" : "rope_scaling", config.rope);
}

// Fields that change what the model computes, in ways that gpt-oss does not use.
void check_fixed(JsonFields& fields) {
  if (fields.has("hidden_act") && fields.at("hidden_act") != "silu") {
    fields.fail("hidden_act", "\"silu\"", Code::kUnsupported);
  }
  if (!fields.boolean_or("attention_bias", true)) {
    fields.fail("attention_bias", "true", Code::kUnsupported);
  }
  if (fields.boolean_or("tie_word_embeddings", false)) {
    fields.fail("tie_word_embeddings", "false", Code::kUnsupported);
  }
}

void read_quantisation(const std::string& path, JsonFields& fields, ModelConfig& config) {
  if (!fields.has("quantization_config")) {
    return;
  }
  if (!fields.at("quantization_config").is_object()) {
    fields.fail("quantization_config", "an object");
    return;
  }
  JsonFields inner(path, fields.at("quantization_config"), "quantization_config.");
  const std::string method = inner.text("quant_method");
  if (inner.status().ok() && method != "mxfp4" && method != "nvfp4") {
    inner.fail("quant_method", "\"mxfp4\" or \"nvfp4\"", Code::kUnsupported);
  }
  config.has_mxfp4_experts = method == "mxfp4";
  config.has_nvfp4_experts = method == "nvfp4";
  fields.fail(inner.status());
}

void read_hugging_face(const std::string& path, JsonFields& fields, ModelConfig& config) {
  const std::string type = fields.text("model_type");
  if (fields.status().ok() && type != "gpt_oss") {
    fields.fail("model_type", "\"gpt_oss\"", Code::kUnsupported);
  }
  config.naming = Naming::kHuggingFace;
  read_shape(fields, config);
  config.num_experts = fields.integer("num_local_experts", kExperts);
  read_top_k(fields, config);
  read_layer_types(fields, config);
  read_rope(path, fields, config);
  config.max_position = fields.integer("max_position_embeddings", kPositions);
  config.rms_norm_eps = static_cast<float>(fields.number("rms_norm_eps", kEps));
  check_fixed(fields);
  read_quantisation(path, fields, config);
  config.eos_ids = fields.ids("eos_token_id", {0, std::max(config.vocab, 1) - 1});
}

void read_open_ai(JsonFields& fields, ModelConfig& config) {
  config.naming = Naming::kOpenAi;
  read_shape(fields, config);
  config.num_experts = fields.integer("num_experts", kExperts);
  config.top_k = fields.integer("experts_per_token", kExperts);
  default_layer_types(config);
  config.rope.theta = fields.number("rope_theta", kTheta);
  config.rope.factor = fields.number("rope_scaling_factor", kFactor);
  config.rope.beta_slow = fields.number("rope_ntk_alpha", kBeta);
  config.rope.beta_fast = fields.number("rope_ntk_beta", kBeta);
  config.rope.original_max_position = fields.integer("initial_context_length", kPositions);
  config.rope.truncate = false;
  const double reach = config.rope.original_max_position * config.rope.factor;
  config.max_position =
      static_cast<std::int32_t>(std::min(reach, static_cast<double>(kPositions.max)));
  config.has_mxfp4_experts = true;  // the only form of that layout
}

void check_together(JsonFields& fields, const ModelConfig& config) {
  if (!fields.status().ok()) {
    return;
  }
  if (config.hidden % 32 != 0) {
    fields.fail("hidden_size", "a multiple of 32");
  }
  if (config.intermediate % 32 != 0) {
    fields.fail("intermediate_size", "a multiple of 32");
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    fields.fail("num_attention_heads",
                fmt::format("a multiple of num_key_value_heads = {}", config.num_kv_heads));
  }
  if (config.head_dim % 2 != 0) {
    fields.fail("head_dim", "an even number");
  }
  if (config.top_k > config.num_experts) {
    fields.fail(fields.has("num_experts_per_tok") ? "num_experts_per_tok" : "experts_per_token",
                fmt::format("at most the {} experts", config.num_experts));
  }
}

}  // namespace

Result<ModelConfig> parse_config(const std::string& path, std::string_view text) {
  NIBBLE_ASSIGN_OR_RETURN(const json object, parse_object(path, text));
  JsonFields fields(path, object);
  ModelConfig config;
  const bool is_open_ai =
      !fields.has("model_type") && fields.has("num_experts") && fields.has("rope_scaling_factor");
  if (is_open_ai) {
    read_open_ai(fields, config);
  } else {
    read_hugging_face(path, fields, config);
  }
  check_together(fields, config);
  NIBBLE_RETURN_IF_ERROR(fields.status());
  return config;
}

Result<ModelConfig> load_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  NIBBLE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  return parse_config(path,
                      {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}

}  // namespace nibble::model
