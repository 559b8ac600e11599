// Which model to compute, before anything of it is loaded: a checkpoint's folder, or a shape with
// random weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/config.h"
#include "model/model.h"
#include "nibble/engine.h"
#include "nibble/status.h"

namespace nibble {

struct ModelSource {
  std::string name;  // folder, or preset of `nibble make-model`
  LoadFormat format = LoadFormat::kFiles;
  model::ModelConfig config;
  model::GenerationDefaults defaults;

  bool is_dummy() const { return format == LoadFormat::kDummy; }
  // Of the safetensors files, or of the tensors that are made in their place.
  std::int64_t weight_bytes() const;
  Result<std::unique_ptr<model::Model>> load(const model::ModelOptions& options) const;
};

// kDummy: a folder needs config.json alone, and a name that is no folder may be a preset's.
// kNotFound and kCorrupt: the model.
Result<ModelSource> find_source(const std::string& model, LoadFormat format);

}  // namespace nibble
