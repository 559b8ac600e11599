#include <utility>

#include "base/error.h"
#include "model/gpt_oss.h"
#include "model/model.h"
#include "model/model_weights.h"

namespace nibble::model {
namespace {

ModelOptions resolved(const ModelConfig& config, const ModelOptions& options) {
  ModelOptions out = options;
  if (out.max_position == 0) {
    out.max_position = config.max_position;
  }
  return out;
}

Status check_options(const ModelConfig& config, const ModelOptions& options) {
  if (options.max_batch_tokens < 1 || options.max_logit_rows < 1 || options.page_size < 1) {
    return error(Code::kInvalidArgument,
                 "want at least 1 batch token, logit row and token in a page, got {}, {}, {}",
                 options.max_batch_tokens, options.max_logit_rows, options.page_size);
  }
  if (options.max_position > config.max_position) {
    return error(Code::kInvalidArgument, "context of {} tokens wanted, the model has {}",
                 options.max_position, config.max_position);
  }
  if (options.int8_experts && options.kernels == KernelChoice::kCuda) {
    return error(Code::kUnsupported,
                 "int8 inputs of experts want a processor, found a GPU; --device cpu asks for one");
  }
  return {};
}

Status check_experts(const ModelOptions& options, ExpertFormat format) {
  if (options.int8_experts && format != ExpertFormat::kMxfp4) {
    return error(Code::kUnsupported, "int8 inputs of experts want weights of mxfp4, found {}",
                 expert_format_name(format));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const std::string& folder, const ModelOptions& options) {
  NIBBLE_ASSIGN_OR_RETURN(ModelConfig config, load_config(folder));
  const ModelOptions used = resolved(config, options);
  NIBBLE_RETURN_IF_ERROR(check_options(config, used));
  NIBBLE_ASSIGN_OR_RETURN(ModelWeights weights, load_weights(folder, config));
  NIBBLE_RETURN_IF_ERROR(check_experts(used, weights.expert_format));
  return make_gpt_oss(std::move(config), used, std::move(weights));
}

Result<std::unique_ptr<Model>> load_dummy_model(const ModelConfig& config,
                                                const ModelOptions& options, std::uint64_t seed) {
  ModelConfig named = config;
  named.naming = Naming::kHuggingFace;  // a tensor's bytes depend on its name
  const ModelOptions used = resolved(named, options);
  NIBBLE_RETURN_IF_ERROR(check_options(named, used));
  NIBBLE_ASSIGN_OR_RETURN(ModelWeights weights, make_dummy_weights(named, seed));
  return make_gpt_oss(std::move(named), used, std::move(weights));
}

}  // namespace nibble::model
