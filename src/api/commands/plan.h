// `nibble plan`: the launch plan of every matrix product of a model, for hardware that need not be
// there.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nibble/status.h"

namespace nibble::commands {

struct PlanOptions {
  std::string model;                 // a checkpoint folder or one of preset_names()
  std::vector<std::string> archs;    // "cpu", "sm_90", ...; empty: all four
  std::vector<std::int64_t> tokens;  // rows of a step; empty: 1, 64, 8192
  std::int32_t tensor_parallel = 1;
  bool is_deterministic = false;
};

// One product on rank 0, which holds the largest part.
struct PlanRow {
  std::string arch;
  std::string op;  // attn_qkv attn_out router moe_gate_up moe_down lm_head
  std::int64_t tokens = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::string form;
  std::int32_t block_m = 0;
  std::int32_t block_n = 0;
  std::int32_t block_k = 0;
  std::int32_t num_warps = 0;
  std::int32_t num_stages = 0;
  std::int32_t split_k = 1;
  bool is_persistent = false;
  std::string layout;
  std::int64_t padded_n = 0;
  std::int64_t padded_k = 0;
  std::int64_t shared_bytes = 0;
  std::int64_t grid = 0;
  bool verified = false;
  std::vector<std::pair<std::string, std::string>> rules;  // field, what decided it
  std::string reason;                                      // all rules in one line
};

struct PlanReport {
  std::vector<PlanRow> rows;          // arch, then tokens, then op in the order of a layer
  std::vector<std::string> warnings;  // each once
};

// kInvalidArgument for an unknown architecture, tokens below 1, or a group size that the model
// cannot be cut for (the possible ones are listed); kUnsupported for a GPU that is too old.
Result<PlanReport> plan(const PlanOptions& options);

}  // namespace nibble::commands
