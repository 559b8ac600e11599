// Routed rows sorted by expert, where a step runs: what ragged.h describes, without blocks.
//
//   slice_offs[e]    rows of the experts before e; slice_offs[num_experts]: of all
//   gather[p]        flat number token * top_k + slot of row p; ascending within an expert
//   scatter[flat]    row of an entry: the inverse of gather
//
// Every id is in [0, num_experts). Deterministic.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/exec.h"

namespace nibble::kernels {

struct SortRowsArgs {
  const std::int32_t* ids = nullptr;   // [num_tokens, top_k]
  std::int32_t* slice_offs = nullptr;  // [num_experts + 1]
  std::int32_t* gather = nullptr;      // [num_tokens * top_k]
  std::int32_t* scatter = nullptr;     // [num_tokens * top_k]
  std::int32_t num_tokens = 0;
  std::int32_t top_k = 0;
  std::int32_t num_experts = 0;
};

Status sort_rows(const SortRowsArgs& args, const Exec& exec);
Status sort_rows_ref(const SortRowsArgs& args);

// Every kernel of this build. Tests walk it.
std::span<const Instance<SortRowsArgs>> sort_rows_instances();

}  // namespace nibble::kernels
