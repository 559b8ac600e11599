// Hyper-parameters of a gpt-oss checkpoint, from `config.json` in any of its spellings: Hugging
// Face with `rope_scaling` + `rope_theta`, with `rope_parameters`, and OpenAI's original names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/rope/rope_store.h"
#include "nibble/status.h"

namespace nibble::model {

// Whose tensor names the checkpoint uses.
enum class Naming : std::uint8_t { kHuggingFace, kOpenAi };

struct ModelConfig {
  std::string architecture;  // "gpt_oss"
  Naming naming = Naming::kHuggingFace;
  std::int32_t num_layers = 0;
  std::int32_t hidden = 0;
  std::int32_t intermediate = 0;
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;  // experts of a token
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t vocab = 0;
  std::int32_t window = 0;            // keys a window layer sees, the current one included
  std::vector<bool> is_window_layer;  // [num_layers]
  std::int32_t max_position = 0;
  kernels::YarnParams rope;
  float rms_norm_eps = 1e-5F;
  float swiglu_alpha = 1.702F;  // fixed by the architecture, not in the file
  float swiglu_limit = 7.0F;
  bool has_mxfp4_experts = false;     // what `quantization_config` says; tensors decide
  bool has_nvfp4_experts = false;     // likewise
  std::vector<std::int32_t> eos_ids;  // from config.json; generation_config.json takes precedence
};

// Parses and checks; every field is required unless the architecture fixes its default. kCorrupt,
// one line naming the file and the field.
Result<ModelConfig> parse_config(const std::string& path, std::string_view json);
Result<ModelConfig> load_config(const std::string& folder);

// What `generation_config.json` sets; absent fields keep these defaults.
struct GenerationDefaults {
  std::vector<std::int32_t> eos_ids;
  std::int32_t bos_id = -1;
  std::int32_t pad_id = -1;
  float temperature = 1.0F;
  float top_p = 1.0F;
  std::int32_t top_k = 0;  // 0: off
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  bool do_sample = true;
};
// kCorrupt, one line naming the file and the field; `path` is for that line.
Result<GenerationDefaults> parse_generation_defaults(const std::string& path, std::string_view json,
                                                     const ModelConfig& config);
// Those of the config alone when the folder has no such file.
Result<GenerationDefaults> load_generation_defaults(const std::string& folder,
                                                    const ModelConfig& config);

}  // namespace nibble::model
