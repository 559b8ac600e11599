// What a call of the expert products keeps while it runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/moe/moe.h"

namespace nibble::kernels {

// Rows of x and h are padded to a multiple of so many columns; in int8 to whole groups.
inline constexpr std::int64_t kRowColumns = 128;

// A pair is one (token, slot). Pairs stand sorted by expert, in order of tokens within one.
struct MoeWorkspace {
  std::int32_t* first = nullptr;     // [num_experts + 1]: pairs of expert e begin here
  std::int32_t* routed = nullptr;    // [pairs]: token * top_k + slot of each pair
  std::int32_t* position = nullptr;  // [pairs]: the inverse
  std::byte* x = nullptr;            // [pairs, x_row_bytes]; inputs of the first product
  std::byte* h = nullptr;            // [pairs, h_row_bytes]; its results
  float* y = nullptr;                // [pairs, hidden]; of the second product, in the place of x
  std::int64_t x_row_bytes = 0;
  std::int64_t h_row_bytes = 0;
  std::int64_t bytes = 0;  // of all
};

// Lays the parts over args.workspace, which may be empty when only sizes are wanted.
MoeWorkspace lay_out_workspace(const MoeArgs& args, std::int32_t num_tokens);

// Counting sort of the routed pairs: fills `first`, `routed` and `position`.
void sort_by_expert(const MoeArgs& args, const MoeWorkspace& work);

}  // namespace nibble::kernels
