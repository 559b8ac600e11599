#include "weights/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "weights/checkpoint_index.h"
#include "weights/header_sax.h"

namespace nibble::weights {
namespace {

namespace fs = std::filesystem;

std::string join(const std::string& folder, std::string_view file) {
  return (fs::path(folder) / file).string();
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Status check_folder(const std::string& folder) {
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) {
    return {};
  }
  if (exists(folder)) {
    return error(Code::kNotFound, "{}: want a model folder, found a file", folder);
  }
  return error(Code::kNotFound, "{}: no such folder", folder);
}

// Names of the folder's files that begin with "model" and end in ".safetensors".
std::set<std::string> model_files(const std::string& folder) {
  std::set<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("model") && name.ends_with(".safetensors")) {
      names.insert(name);
    }
  }
  return names;
}

Status no_weights(const std::string& folder) {
  const std::set<std::string> others = model_files(folder);
  if (!others.empty()) {
    return error(Code::kNotFound, "{}: want {} or {}, found {} without an index", folder,
                 kSingleFile, kIndexFile, fmt::join(others, ", "));
  }
  const std::string original = join(folder, "original");
  if (exists(join(original, kSingleFile)) || exists(join(original, kIndexFile))) {
    return error(Code::kNotFound, "{}: no {} here; OpenAI's layout is in {}: name that folder",
                 folder, kSingleFile, original);
  }
  return error(Code::kNotFound, "{}: no {} and no {}", folder, kSingleFile, kIndexFile);
}

// Shards on disk and in the index must be the same.
Status check_shards(const std::string& folder, const WeightMap& map) {
  std::set<std::string> wanted;
  for (const auto& [tensor, file] : map) {
    wanted.insert(file);
  }
  std::vector<std::string> missing;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(missing),
               [&](const std::string& file) { return !exists(join(folder, file)); });
  if (!missing.empty()) {
    return error(Code::kNotFound, "{}: {} of {} files that {} names are missing: {}", folder,
                 missing.size(), wanted.size(), kIndexFile, fmt::join(missing, ", "));
  }
  for (const std::string& file : model_files(folder)) {
    if (!wanted.contains(file)) {
      return error(Code::kCorrupt, "{}: {} is there, but {} does not name it: delete one of them",
                   folder, printable(file), kIndexFile);
    }
  }
  return {};
}

// Tensors of a shard and those that the index places there must be the same.
Status check_shard(const SafetensorsFile& shard, const std::string& file, const WeightMap& map) {
  const std::string& path = shard.file().path();
  std::set<std::string_view> found;
  for (const TensorEntry& entry : shard.header().tensors) {
    found.insert(entry.name);
    const auto place = map.find(entry.name);
    if (place == map.end() || place->second != file) {
      return error(Code::kCorrupt, "{}: holds tensor {}, which {} places {}", path,
                   printable(entry.name), kIndexFile,
                   place == map.end() ? "nowhere" : "in " + place->second);
    }
  }
  for (const auto& [tensor, place] : map) {
    if (place == file && !found.contains(tensor)) {
      return error(Code::kCorrupt, "{}: no tensor {}, which {} places here", path,
                   printable(tensor), kIndexFile);
    }
  }
  return {};
}

Result<WeightMap> read_index(const std::string& folder) {
  const std::string path = join(folder, kIndexFile);
  NIBBLE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file.bytes();
  NIBBLE_ASSIGN_OR_RETURN(
      WeightMap map,
      parse_index(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  NIBBLE_RETURN_IF_ERROR(check_shards(folder, map));
  return map;
}

// Opens the files of a folder. The index map is empty for a single file.
Status open_files(const std::string& folder, std::vector<std::unique_ptr<SafetensorsFile>>& out) {
  WeightMap map;
  std::set<std::string> names;
  if (exists(join(folder, kIndexFile))) {
    NIBBLE_ASSIGN_OR_RETURN(map, read_index(folder));
    for (const auto& [tensor, file] : map) {
      names.insert(file);
    }
  } else if (exists(join(folder, kSingleFile))) {
    names.emplace(kSingleFile);
  } else {
    return no_weights(folder);
  }
  for (const std::string& name : names) {
    NIBBLE_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(join(folder, name)));
    if (!map.empty()) {
      NIBBLE_RETURN_IF_ERROR(check_shard(file, name, map));
    }
    out.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  }
  return {};
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  NIBBLE_RETURN_IF_ERROR(check_folder(folder));
  Checkpoint out;
  out.folder_ = folder;
  NIBBLE_RETURN_IF_ERROR(open_files(folder, out.files_));
  for (const auto& file : out.files_) {
    for (const TensorEntry& entry : file->header().tensors) {
      out.tensors_.emplace(entry.name, Tensor{file->view(entry), file.get()});
    }
  }
  return out;
}

Checkpoint Checkpoint::of_views(std::string name,
                                std::span<const std::pair<std::string, TensorView>> views) {
  Checkpoint out;
  out.folder_ = std::move(name);
  for (const auto& [tensor, view] : views) {
    out.tensors_.emplace(tensor, Tensor{view, nullptr});
  }
  return out;
}

const Checkpoint::Tensor* Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::int64_t Checkpoint::file_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& file : files_) {
    bytes += static_cast<std::int64_t>(file->file().bytes().size());
  }
  return bytes;
}

void Checkpoint::drop(const Tensor& tensor) const {
  if (tensor.file == nullptr) {
    return;
  }
  tensor.file->file().drop(static_cast<const std::byte*>(tensor.view.data),
                           static_cast<std::size_t>(tensor.view.bytes()));
}

}  // namespace nibble::weights
