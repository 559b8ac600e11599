// Rows of a sequence and the pages of its keys: plain data for host and device.
#pragma once

#include <cstdint>

namespace nibble::kernels {

// Consecutive rows of one sequence.
struct AttentionSequence {
  std::int32_t first_row = 0;  // in q and out
  std::int32_t num_rows = 0;
  std::int32_t first_position = 0;  // position of first_row; row i is at first_position + i
  const std::int32_t* pages =
      nullptr;                  // pages[i] holds positions [(first_page + i) * page_size, ...)
  std::int32_t first_page = 0;  // logical index of pages[0]; earlier pages are not needed
};

}  // namespace nibble::kernels
