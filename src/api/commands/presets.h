// The shapes that `make-model` knows, and their configuration files.
#pragma once

#include <optional>
#include <string>

#include "model/config.h"

namespace nibble::commands {

// Ids that end or pad a sequence.
struct SpecialIds {
  std::int32_t bos = 0;
  std::int32_t end_of_text = 0;  // also the padding
  std::int32_t end_of_turn = 0;  // "<|return|>"
  std::int32_t call = 0;         // "<|call|>"
};

struct Preset {
  std::string name;
  model::ModelConfig config;
  SpecialIds ids;
};

std::optional<Preset> find_preset(const std::string& name);
// Sets the number of layers, with the window on every second one from the first.
void set_layers(Preset& preset, std::int32_t num_layers);

std::string config_json(const Preset& preset);
std::string generation_config_json(const Preset& preset);

}  // namespace nibble::commands
