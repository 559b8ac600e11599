#include "api/commands/expert_form.h"

#include <array>

#include "base/error.h"
#include "model/tensor_list.h"

namespace nibble::commands {
namespace {

using weights::TensorSpec;

constexpr std::array<std::string_view, 3> kNames = {"bf16", "mxfp4", "nvfp4"};
constexpr std::int64_t kMxBlock = 32;
constexpr std::int64_t kNvBlock = 16;

}  // namespace

std::string_view expert_form_name(ExpertForm form) { return kNames[static_cast<int>(form)]; }

std::optional<ExpertForm> find_expert_form(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      return static_cast<ExpertForm>(i);
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

std::vector<TensorSpec> stack_tensors(const ExpertStack& stack, ExpertForm form) {
  const std::int64_t e = stack.num_experts;
  switch (form) {
    case ExpertForm::kBf16: return {{stack.stem, {e, stack.cols, stack.rows}, {DType::kBF16}}};
    case ExpertForm::kMxfp4:
      return {{stack.stem + "_blocks",
               {e, stack.rows, stack.cols / kMxBlock, kMxBlock / 2},
               {DType::kU8}},
              {stack.stem + "_scales",
               {e, stack.rows, stack.cols / kMxBlock},
               {DType::kU8, DType::kUE8M0}}};
    case ExpertForm::kNvfp4:
      return {
          {stack.stem + "_weight", {e, stack.rows, stack.cols / 2}, {DType::kU8}},
          {stack.stem + "_weight_scale", {e, stack.rows, stack.cols / kNvBlock}, {DType::kE4M3}},
          {stack.stem + "_weight_scale_2", {e}, {DType::kF32}}};
  }
  return {};
}

std::vector<TensorSpec> model_tensors(const model::ModelConfig& config, ExpertForm form) {
  // The bf16 list names each stack once, in its place.
  std::vector<TensorSpec> out;
  const std::vector<ExpertStack> stacks = expert_stacks(config);
  std::size_t next = 0;
  for (TensorSpec& spec : model::tensor_list(config, model::ExpertFormat::kBf16Transposed)) {
    if (next < stacks.size() && spec.name == stacks[next].stem) {
      for (TensorSpec& part : stack_tensors(stacks[next], form)) {
        out.push_back(std::move(part));
      }
      ++next;
    } else {
      out.push_back(std::move(spec));
    }
  }
  return out;
}

Result<ExpertForm> detect_expert_form(const model::ModelConfig& config,
                                      const weights::Checkpoint& checkpoint) {
  const std::vector<ExpertStack> stacks = expert_stacks(config);
  if (checkpoint.find(stacks.front().stem + "_weight_scale_2") != nullptr) {
    return ExpertForm::kNvfp4;
  }
  NIBBLE_ASSIGN_OR_RETURN(const model::ExpertFormat format,
                          model::detect_expert_format(config, checkpoint));
  return format == model::ExpertFormat::kMxfp4 ? ExpertForm::kMxfp4 : ExpertForm::kBf16;
}

}  // namespace nibble::commands
