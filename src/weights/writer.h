// Writes a sharded safetensors checkpoint as a stream: no tensor is ever whole in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "nibble/status.h"
#include "weights/checkpoint.h"

namespace nibble::weights {

struct WriteOptions {
  std::int64_t max_shard_bytes = std::int64_t{5} << 30U;
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
};

// Fills `out` with the bytes [offset, offset + out.size()) of tensor `spec`.
using TensorFill =
    std::function<Status(const TensorSpec& spec, std::int64_t offset, std::span<std::byte> out)>;
// False ends the writing.
using WriteProgress = std::function<bool(std::int64_t bytes_done, std::int64_t bytes_total)>;

// Total bytes of the files that `write_checkpoint` would make, headers and index included.
std::int64_t checkpoint_bytes(std::span<const TensorSpec> tensors, const WriteOptions& options);
// Number of those files, without the index.
std::int64_t checkpoint_shards(std::span<const TensorSpec> tensors, const WriteOptions& options);

// Writes model.safetensors, or numbered shards and their index, into the existing folder `folder`.
// The first dtype of each spec is written. Tensors are filled in pieces of a multiple of 64 bytes,
// but for their ends. Files appear under their final names only when all are complete (until then
// as NAME.partial, removed on failure), the index last; nothing is synced to the disk.
// kExhausted with both numbers before anything is written when the disk is too small; kCancelled
// when `progress` says so.
Status write_checkpoint(const std::string& folder, std::span<const TensorSpec> tensors,
                        const TensorFill& fill, const WriteOptions& options,
                        const WriteProgress& progress);

}  // namespace nibble::weights
