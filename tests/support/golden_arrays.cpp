#include "support/golden_arrays.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace nibble::testing_support {
namespace {

const nlohmann::json& file_of(const std::string& name) {
  static std::map<std::string, nlohmann::json> files;
  const auto found = files.find(name);
  if (found != files.end()) {
    return found->second;
  }
  std::ifstream in(std::string(NIBBLE_SOURCE_DIR "/tests/golden/kernels/") + name + ".json");
  return files.emplace(name, nlohmann::json::parse(in)).first->second;
}

}  // namespace

GoldenArrays::GoldenArrays(const std::string& name, const std::string& list, std::size_t index) {
  const nlohmann::json& file = file_of(name);
  for (const auto& [key, value] : (list.empty() ? file : file[list][index]).items()) {
    if (value.is_number()) {
      arrays_[key] = {value.get<double>()};
    } else if (value.empty() || value[0].is_number()) {
      arrays_[key] = value.get<std::vector<double>>();
    }
  }
}

std::size_t GoldenArrays::count(const std::string& name, const std::string& list) {
  return file_of(name)[list].size();
}

}  // namespace nibble::testing_support
