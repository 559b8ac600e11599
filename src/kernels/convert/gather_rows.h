// Embedding lookup:  out[r, c] = f32(table[ids[r], c])
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/dtype.h"
#include "tensor/exec.h"

namespace nibble::kernels {

struct GatherRowsArgs {
  const void* table = nullptr;        // [table_rows, cols] dtype
  const std::int32_t* ids = nullptr;  // [rows], each in [0, table_rows)
  float* out = nullptr;               // [rows, cols]
  std::int32_t rows = 0;
  std::int32_t cols = 0;
  std::int32_t table_rows = 0;
  DType dtype = DType::kBF16;  // kBF16 or kF32
};

// kInvalidArgument names the first id that is out of range; on a GPU such a row becomes NaN, since
// the host does not see the ids. Exact: a widening copy.
Status gather_rows(const GatherRowsArgs& args, const Exec& exec);
Status gather_rows_ref(const GatherRowsArgs& args);

// Every kernel of this build. Tests and benchmarks walk it.
std::span<const Instance<GatherRowsArgs>> gather_rows_instances();

}  // namespace nibble::kernels
