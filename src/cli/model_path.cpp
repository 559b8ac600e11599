#include "cli/model_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/error.h"

namespace nibble::cli {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool is_folder(const fs::path& path) {
  std::error_code fault;
  return fs::is_directory(path, fault);
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code fault;
  for (fs::directory_iterator it(folder, fault), end; !fault && it != end; it.increment(fault)) {
    found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<std::string> find_demo(const ModelPlaces& places) {
  if (!places.demo.empty()) {
    if (is_folder(places.demo)) {
      return places.demo;
    }
    return error(Code::kNotFound, "NIBBLE_DEMO={}: no such folder", places.demo);
  }
  const fs::path folder = fs::path(places.executable).parent_path();
  const fs::path installed = (folder / "../share/nibble/models/demo").lexically_normal();
  const fs::path built = (folder / "../../models/demo").lexically_normal();
  for (const fs::path& path : {installed, built}) {
    if (is_folder(path)) {
      return path.string();
    }
  }
  return error(Code::kNotFound,
               "no MODEL given and no demo checkpoint in {} or {}: name a model folder, or set "
               "NIBBLE_DEMO",
               installed.string(), built.string());
}

// The snapshot that refs/main names, else the only one.
Result<std::string> find_snapshot(const fs::path& repository) {
  std::ifstream reference(repository / "refs" / "main");
  std::string revision;
  if (std::getline(reference, revision) && is_folder(repository / "snapshots" / revision)) {
    return (repository / "snapshots" / revision).string();
  }
  const std::vector<fs::path> snapshots = entries(repository / "snapshots");
  if (snapshots.size() == 1) {
    return snapshots.front().string();
  }
  return error(Code::kNotFound,
               "{}: want the revision of refs/main or exactly one snapshot, found {} snapshots",
               repository.string(), snapshots.size());
}

// Folders of the cache that `name` may mean.
std::vector<fs::path> repositories(const std::string& name, const std::string& cache) {
  const std::size_t slash = name.find('/');
  std::vector<fs::path> found;
  for (const fs::path& path : entries(cache)) {
    const std::string folder = path.filename().string();
    const bool is_same =
        slash == std::string::npos
            ? folder == "models--" + name ||
                  (folder.starts_with("models--") && folder.ends_with("--" + name))
            : folder == "models--" + name.substr(0, slash) + "--" + name.substr(slash + 1);
    if (is_same) {
      found.push_back(path);
    }
  }
  return found;
}

Status not_found(const std::string& name, const ModelPlaces& places) {
  const std::string cache = places.hub_cache.empty() ? "no cache" : places.hub_cache;
  if (name.find_first_of(" \n") != std::string::npos) {
    return error(Code::kNotFound,
                 "no model '{:.40}': MODEL is a folder or a name in the Hugging Face cache; a "
                 "prompt goes after -p",
                 name);
  }
  return error(Code::kNotFound, "no model '{}': want a folder with config.json, or a name in {}",
               name, cache);
}

}  // namespace

ModelPlaces model_places(const std::string& executable) {
  ModelPlaces places;
  places.demo = variable("NIBBLE_DEMO");
  places.executable = executable;
  if (const std::string cache = variable("HF_HUB_CACHE"); !cache.empty()) {
    places.hub_cache = cache;
  } else if (const std::string home = variable("HF_HOME"); !home.empty()) {
    places.hub_cache = home + "/hub";
  } else if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) {
    places.hub_cache = xdg + "/huggingface/hub";
  } else if (const std::string user = variable("HOME"); !user.empty()) {
    places.hub_cache = user + "/.cache/huggingface/hub";
  }
  return places;
}

Result<std::string> find_model(const std::string& name, const ModelPlaces& places) {
  if (name.empty()) {
    return find_demo(places);
  }
  std::error_code fault;
  if (fs::is_directory(name, fault)) {
    return name;
  }
  if (fs::exists(name, fault)) {
    return error(Code::kNotFound, "{}: want a model folder, found a file; try {}", name,
                 fs::absolute(name).parent_path().string());
  }
  const std::vector<fs::path> found = repositories(name, places.hub_cache);
  if (found.size() > 1) {
    return error(Code::kNotFound, "model '{}' is ambiguous in {}: {} and {} match; write ORG/NAME",
                 name, places.hub_cache, found[0].filename().string(),
                 found[1].filename().string());
  }
  if (found.empty()) {
    return not_found(name, places);
  }
  return find_snapshot(found.front());
}

}  // namespace nibble::cli
