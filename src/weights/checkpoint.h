// All tensors of a model folder: `model.safetensors`, or the shards that
// `model.safetensors.index.json` names. With an index, a file `model*.safetensors` that the index
// does not name is refused; other files are ignored.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nibble/status.h"
#include "tensor/view.h"
#include "weights/safetensors.h"

namespace nibble::weights {

class Checkpoint {
 public:
  // Opens, maps and checks every file. The set of shards must equal the index's, and so must the
  // tensors of each. kNotFound when files are missing (all are listed), kCorrupt otherwise.
  static Result<Checkpoint> open(const std::string& folder);

  // Tensors that lie in memory instead of files; what they view must outlive the checkpoint.
  static Checkpoint of_views(std::string name,
                             std::span<const std::pair<std::string, TensorView>> views);

  struct Tensor {
    TensorView view;
    const SafetensorsFile* file = nullptr;  // null: not in a file
  };
  const Tensor* find(std::string_view name) const;
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  const std::string& folder() const { return folder_; }
  std::size_t num_files() const { return files_.size(); }
  std::int64_t file_bytes() const;

  // The pages of this tensor are not needed again (it was copied or repacked).
  void drop(const Tensor& tensor) const;

 private:
  std::string folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

// What a model needs of a checkpoint.
struct TensorSpec {
  std::string name;
  Shape shape;
  std::vector<DType> dtypes;  // accepted
};

// Difference between what is wanted and what is there, one line an item: missing, extra, wrong
// shape, wrong dtype, and a scale byte 255 (NaN) in a tensor that may be kUE8M0. Reads those scale
// tensors once, no others.
struct MatchReport {
  std::vector<std::string> problems;
  bool ok() const { return problems.empty(); }
  // "FOLDER: 7 tensors do not fit the config: A; B; C; D; E; and 2 more (see `nibble inspect`)"
  std::string summary(const std::string& folder) const;
};
MatchReport match(std::span<const TensorSpec> wanted, const Checkpoint& checkpoint);

}  // namespace nibble::weights
