#include "api/model_source.h"

#include <filesystem>
#include <optional>

#include "api/commands/presets.h"
#include "base/error.h"
#include "model/tensor_list.h"
#include "tensor/machine_facts.h"
#include "weights/checkpoint.h"

namespace nibble {
namespace {

constexpr std::uint64_t kSeed = 0;  // make-model's own default

std::int64_t file_bytes(const std::string& folder) {
  std::int64_t bytes = 0;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    if (entry.path().extension() == ".safetensors") {
      const auto size = entry.file_size(failed);
      bytes += failed ? 0 : static_cast<std::int64_t>(size);
    }
  }
  return bytes;
}

// By way of the files that make-model writes, so that both are read alike.
Result<ModelSource> source_of(const commands::Preset& preset) {
  ModelSource out{.name = preset.name, .format = LoadFormat::kDummy};
  NIBBLE_ASSIGN_OR_RETURN(
      out.config, model::parse_config(preset.name + "/config.json", commands::config_json(preset)));
  NIBBLE_ASSIGN_OR_RETURN(out.defaults, model::parse_generation_defaults(
                                            preset.name + "/generation_config.json",
                                            commands::generation_config_json(preset), out.config));
  return out;
}

}  // namespace

std::int64_t ModelSource::weight_bytes() const {
  if (!is_dummy()) {
    return file_bytes(name);
  }
  std::int64_t bytes = 0;
  for (const weights::TensorSpec& spec :
       model::tensor_list(config, model::configured_expert_format(config))) {
    bytes += TensorView{nullptr, spec.dtypes.front(), spec.shape}.bytes();
  }
  return bytes;
}

Result<std::unique_ptr<model::Model>> ModelSource::load(const model::ModelOptions& options) const {
  if (is_dummy() && options.kernels != model::KernelChoice::kCuda) {
    MachineFacts machine;  // a checkpoint is mapped; these take memory
    probe_host(machine);
    if (const std::int64_t wanted = weight_bytes(); wanted > machine.available_bytes) {
      return error(Code::kExhausted, "{}: want {} bytes of memory for dummy weights, found {}",
                   name, wanted, machine.available_bytes);
    }
  }
  return is_dummy() ? model::load_dummy_model(config, options, kSeed)
                    : model::load_model(name, options);
}

Result<ModelSource> find_source(const std::string& model, LoadFormat format) {
  std::error_code ignored;
  if (format == LoadFormat::kDummy && !std::filesystem::is_directory(model, ignored)) {
    if (const std::optional<commands::Preset> preset = commands::find_preset(model)) {
      return source_of(*preset);
    }
  }
  ModelSource out{.name = model, .format = format};
  NIBBLE_ASSIGN_OR_RETURN(out.config, model::load_config(model));
  NIBBLE_ASSIGN_OR_RETURN(out.defaults, model::load_generation_defaults(model, out.config));
  return out;
}

}  // namespace nibble
