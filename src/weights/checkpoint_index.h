// `model.safetensors.index.json`: which shard holds which tensor.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "nibble/status.h"

namespace nibble::weights {

inline constexpr std::string_view kSingleFile = "model.safetensors";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

using WeightMap = std::map<std::string, std::string, std::less<>>;  // tensor name -> file name

// Not empty; no duplicate names; files are plain names that end in ".safetensors". kCorrupt
// otherwise.
Result<WeightMap> parse_index(const std::string& path, std::string_view text);

}  // namespace nibble::weights
