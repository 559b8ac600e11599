#include "api/commands/expert_form.h"

#include "base/error.h"

namespace nibble::commands {

std::optional<ExpertFormat> find_expert_format(std::string_view name) {
  for (const ExpertFormat format :
       {ExpertFormat::kBf16Transposed, ExpertFormat::kMxfp4, ExpertFormat::kNvfp4}) {
    if (model::expert_format_name(format) == name) {
      return format;
    }
  }
  return std::nullopt;
}

std::vector<ExpertStack> expert_stacks(const model::ModelConfig& config) {
  std::vector<ExpertStack> stacks;
  const std::int64_t inner = config.intermediate;
  for (std::int32_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.mlp.experts.", layer);
    stacks.push_back({prefix + "gate_up_proj", config.num_experts, 2 * inner, config.hidden});
    stacks.push_back({prefix + "down_proj", config.num_experts, config.hidden, inner});
  }
  return stacks;
}

}  // namespace nibble::commands
