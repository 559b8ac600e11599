// The forms that the experts of a checkpoint may have on disk, and their tensors.
// docs/formats/mxfp4.md, docs/formats/nvfp4.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "weights/checkpoint.h"

namespace nibble::commands {

enum class ExpertForm : std::uint8_t { kBf16, kMxfp4, kNvfp4 };

std::string_view expert_form_name(ExpertForm form);
std::optional<ExpertForm> find_expert_form(std::string_view name);

// One stacked projection: num_experts matrices of [rows, cols], cols along the reduction axis.
struct ExpertStack {
  std::string stem;  // "model.layers.0.mlp.experts.gate_up_proj"
  std::int64_t num_experts = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

// Both projections of every layer, in order of the checkpoint.
std::vector<ExpertStack> expert_stacks(const model::ModelConfig& config);

// Tensors of a stack: STEM [experts, cols, rows] bf16; STEM_blocks and STEM_scales; STEM_weight,
// STEM_weight_scale and STEM_weight_scale_2.
std::vector<weights::TensorSpec> stack_tensors(const ExpertStack& stack, ExpertForm form);

// Every tensor of a model with Hugging Face names.
std::vector<weights::TensorSpec> model_tensors(const model::ModelConfig& config, ExpertForm form);

// From the names of layer 0.
Result<ExpertForm> detect_expert_form(const model::ModelConfig& config,
                                      const weights::Checkpoint& checkpoint);

}  // namespace nibble::commands
