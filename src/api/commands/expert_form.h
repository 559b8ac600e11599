// The forms that the experts of a checkpoint may have on disk, by the names of the command line.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/tensor_list.h"

namespace nibble::commands {

using model::ExpertFormat;
using model::ExpertStack;

std::optional<ExpertFormat> find_expert_format(std::string_view name);

// Both projections of every layer, in order of the checkpoint.
std::vector<ExpertStack> expert_stacks(const model::ModelConfig& config);

}  // namespace nibble::commands
