// The tensors of a gpt-oss checkpoint: names, shapes and accepted dtypes, for both namings and for
// every form of the experts (docs/formats/mxfp4.md, docs/formats/nvfp4.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "weights/checkpoint.h"

namespace nibble::model {

enum class ExpertFormat : std::uint8_t { kMxfp4, kBf16Transposed, kNvfp4 };

// "mxfp4", "bf16" or "nvfp4".
std::string_view expert_format_name(ExpertFormat format);

// Which form the experts of `checkpoint` have, from the names of layer 0.
Result<ExpertFormat> detect_expert_format(const ModelConfig& config,
                                          const weights::Checkpoint& checkpoint);

// What the config says, for a checkpoint that is not there.
ExpertFormat configured_expert_format(const ModelConfig& config);

// One stacked projection: num_experts matrices of [rows, cols], cols along the reduction axis.
struct ExpertStack {
  std::string stem;  // "model.layers.0.mlp.experts.gate_up_proj"
  std::int64_t num_experts = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

// Hugging Face tensors of a stack without its bias: STEM [experts, cols, rows] bf16; STEM_blocks
// and STEM_scales; STEM_weight, STEM_weight_scale and STEM_weight_scale_2.
std::vector<weights::TensorSpec> stack_tensors(const ExpertStack& stack, ExpertFormat format);

// Bytes of expert values with their block scales; `elems` is a multiple of 32.
std::int64_t expert_bytes(std::int64_t elems, ExpertFormat format);

// In the order of the published files: embedding, layers, norm, head.
std::vector<weights::TensorSpec> tensor_list(const ModelConfig& config, ExpertFormat experts);

// Name of a Hugging Face tensor under `naming`: "model.layers.3.mlp.router.weight" is
// "block.3.mlp.gate.weight" for kOpenAi. q, k and v map to the fused "attn.qkv".
std::string tensor_name(const std::string& hf_name, Naming naming);

}  // namespace nibble::model
