// `nibble verify`: this machine's kernels beside the scalar references, block by block.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nibble/engine.h"
#include "nibble/status.h"

namespace nibble::commands {

struct VerifyOptions {
  std::string model;  // folder, or a preset with kDummy
  LoadFormat load_format = LoadFormat::kFiles;
  std::vector<std::int32_t> ids;  // tokens to run; empty: num_tokens seeded random ones
  std::int32_t num_tokens = 16;
  std::uint64_t seed = 0;
  Activation activation = Activation::kBf16;
  KvCacheType kv_cache = KvCacheType::kAuto;
  DeviceChoice device = DeviceChoice::kAuto;
  std::int32_t num_threads = 0;
};

// One block of the model, both computed from the same input.
struct VerifyRow {
  std::int32_t layer = 0;           // num_layers: the head
  std::string block;                // "attention", "router", "experts", "head"
  double largest_difference = 0.0;  // absolute
  std::int32_t at_row = 0;          // where
  std::int32_t at_column = 0;
  double relative_difference = 0.0;  // |a - b| / |b| over the block, Euclidean norms
  bool is_within_bound = false;
};

struct VerifyReport {
  std::string device;      // where the tested kernels ran, and why
  std::string activation;  // "bf16", "f32" or "int8"
  std::string kv_cache;    // "bf16", "f32" or "fp8"
  std::int32_t num_tokens = 0;
  double bound = 0.0;  // on relative_difference; docs/numerics.md derives it
  std::vector<VerifyRow> rows;
  bool is_ok = false;
};

// kNotFound and kCorrupt: the model; kInvalidArgument: ids outside the vocabulary. Differences
// beyond the bound are part of the report. `progress` is called after each of the two passes.
Result<VerifyReport> verify(
    const VerifyOptions& options,
    const std::function<void(std::int32_t done, std::int32_t total)>& progress);

}  // namespace nibble::commands
