// `nibble make-model`: a checkpoint of a published shape with random, well-scaled weights.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nibble/status.h"

namespace nibble::commands {

struct MakeModelOptions {
  std::string preset;           // "tiny", "gpt-oss-20b", "gpt-oss-120b"
  std::string destination;      // created; must be empty or absent
  std::int32_t num_layers = 0;  // 0: the preset's
  std::uint64_t seed = 0;
  std::string tokenizer_folder;  // copied; refused when its ids do not fit the vocabulary
  std::int64_t max_shard_bytes = std::int64_t{5} << 30;
};

struct MakeModelTensor {
  std::string name;
  std::string dtype;
  std::string shape;
  std::int64_t bytes = 0;
};
struct MakeModelPlan {
  std::vector<MakeModelTensor> tensors;
  std::int64_t total_bytes = 0;  // of all files
  std::int64_t num_shards = 0;
};

std::vector<std::string> preset_names();
// What `make_model` would write.
Result<MakeModelPlan> plan_model(const MakeModelOptions& options);
// Streams the files. kExhausted before writing when the disk is too small; kCancelled when
// `progress` gives false. A failure leaves no file, and no folder that was not there. The same seed
// gives the same bytes.
Status make_model(const MakeModelOptions& options,
                  const std::function<bool(std::int64_t done, std::int64_t total)>& progress);

}  // namespace nibble::commands
