// The tensors of a gpt-oss checkpoint: names, shapes and accepted dtypes, for both namings and for
// MXFP4 and bf16 experts.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "weights/checkpoint.h"

namespace nibble::model {

enum class ExpertFormat : std::uint8_t { kMxfp4, kBf16Transposed };

// Which form the experts of `checkpoint` have, from the names of layer 0.
Result<ExpertFormat> detect_expert_format(const ModelConfig& config,
                                          const weights::Checkpoint& checkpoint);

// In the order of the published files: embedding, layers, norm, head.
std::vector<weights::TensorSpec> tensor_list(const ModelConfig& config, ExpertFormat experts);

// Name of a Hugging Face tensor under `naming`: "model.layers.3.mlp.router.weight" is
// "block.3.mlp.gate.weight" for kOpenAi. q, k and v map to the fused "attn.qkv".
std::string tensor_name(const std::string& hf_name, Naming naming);

}  // namespace nibble::model
