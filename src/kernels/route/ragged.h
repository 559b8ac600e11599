// Ragged description of routed rows: which entries belong to which expert, and in what blocks.
//
// An entry is a (token, slot) pair with flat number token * top_k + slot. Sorted by expert, stable
// in the flat number, entry p of that order is a row of the expert products:
//
//   slice_sizes[e]   rows of expert e                 slice_offs[e]  sum of the sizes before e
//   gather[p]        flat number of row p: token = gather[p] / top_k
//   scatter[flat]    row of an entry: the inverse of gather
//   gates[p]         weights[gather[p]]
//
// Entries of padding tokens and entries whose id is -1 (expert of another rank) are in no slice:
// their scatter is -1, and the tail of gather is -1, of gates 0.
//
// For every block size b, with E = num_experts and rows = num_tokens * top_k:
//   block_offs[e]    sum over the experts before e of ceil(size / b); block_offs[E] is the total
//   schedule[i]      (block << 16) | expert, expert after expert, block after block; then -1
// schedule has max_blocks(rows, E) places, enough for every distribution and every b >= 16.
//
// Deterministic. The description is that of triton_kernels 3.6 (RaggedTensorMetadata and the mask
// metadata of its SparseMatrix), so plans and kernels made for it carry over. docs/routing.md draws
// an example.
#pragma once

#include <cstdint>
#include <span>

#include "nibble/status.h"

namespace nibble::kernels {

inline constexpr std::int32_t kBlockRows[] = {16, 32, 64, 128};
inline constexpr std::int32_t kMinBlockRows = 16;

struct RaggedArgs {
  const std::int32_t* ids = nullptr;  // [num_tokens, top_k] in [-1, num_experts)
  const float* weights = nullptr;     // [num_tokens, top_k]; null: gates are not written
  std::int32_t num_tokens = 0;
  std::int32_t num_valid_tokens = 0;
  std::int32_t top_k = 0;
  std::int32_t num_experts = 0;
  std::span<const std::int32_t> block_rows = kBlockRows;  // each >= kMinBlockRows
};

struct RaggedOut {
  std::int32_t* slice_sizes = nullptr;  // [num_experts]
  std::int32_t* slice_offs = nullptr;   // [num_experts + 1]
  std::int32_t* gather = nullptr;       // [num_tokens * top_k]
  std::int32_t* scatter = nullptr;      // [num_tokens * top_k]
  float* gates = nullptr;               // [num_tokens * top_k] or null
  std::int32_t* block_offs = nullptr;   // [block_rows.size(), num_experts + 1]
  std::int32_t* schedule = nullptr;     // [block_rows.size(), max_blocks()]
};

// rows if rows <= num_experts, else num_experts - 1 - floor((num_experts - rows - 1) / 16).
std::int64_t max_blocks(std::int64_t rows, std::int32_t num_experts);

// kInvalidArgument, naming token and slot, for an id out of range; kUnsupported when a block number
// would not fit its 15 bits. O(rows + experts); host memory; no allocation.
Status build_ragged(const RaggedArgs& args, const RaggedOut& out);

// Slices of `src` (num_src of them, with block sizes as above) renumbered by slice_map[num_src]:
// slice s becomes slice_map[s], or vanishes for -1. Offsets still point into the rows of `src`, so
// a rank works on its part of rows that all ranks sorted. Every number 0..num_dst-1 must be hit
// once. `out` needs slice_sizes, slice_offs (first row of each slice, then how many rows they have
// together), block_offs and schedule; its gather, scatter and gates are not touched.
struct RemapArgs {
  RaggedOut src;
  std::span<const std::int32_t> slice_map;  // [num_src]
  std::int32_t num_dst = 0;
  std::int64_t rows = 0;  // num_tokens * top_k of src
  std::span<const std::int32_t> block_rows = kBlockRows;
};
Status remap_ragged(const RemapArgs& args, const RaggedOut& out);

}  // namespace nibble::kernels
