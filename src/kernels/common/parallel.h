// Splits rows over the workers of a pool, or does small calls where they are.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "tensor/exec.h"

namespace nibble::kernels {

// About 5 us of one worker, in elements touched: waking a pool costs as much.
inline constexpr std::int64_t kInlineElems = std::int64_t{1} << 14U;

inline int num_workers(const Exec& exec) { return exec.pool == nullptr ? 1 : exec.pool->size(); }

// Calls body(Range) for disjoint ranges that cover [0, rows). Which worker does a row may not
// matter to its bits.
template <typename Body>
void for_rows(const Exec& exec, std::int64_t rows, std::int64_t elems_per_row, Body&& body) {
  if (rows <= 1 || num_workers(exec) == 1 || rows * elems_per_row < kInlineElems) {
    if (rows > 0) {
      body(Range{0, rows});
    }
    return;
  }
  exec.pool->run_split(rows, 1, [&](int /*worker*/, Range range) { body(range); });
}

}  // namespace nibble::kernels
