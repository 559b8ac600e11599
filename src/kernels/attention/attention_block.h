// The arithmetic of attention() on processors: up to 64 queries of one kv head against one chunk of
// keys, in fp32.
//
// A query is a pair (row, head of the group); consecutive queries of a sequence form a block and
// lie in vector lanes, so that keys and values are read once for the block and no sum crosses
// lanes. Keys are taken in tiles of 64 and tiles in chunks of 512, both cut at multiples of their
// size. Every lane computes: scores summed over channels in order; the tile's maximum; sums over
// keys in order; tiles folded into the chunk in order; chunks folded in order; the sink last. A
// tile or chunk without a visible key changes no bit, so the blocks a query shares do not matter.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"

namespace nibble::kernels {

inline constexpr std::int32_t kBlockQueries = 64;
inline constexpr std::int32_t kTileKeys = 64;
inline constexpr std::int32_t kChunkKeys = 512;

struct QueryBlock {
  const AttentionArgs* args = nullptr;
  const AttentionSequence* sequence = nullptr;
  std::int32_t kv_head = 0;
  std::int32_t first_query = 0;  // row * heads of the group + head in the group
  std::int32_t num_queries = 0;  // 1 to kBlockQueries

  std::int32_t group() const { return args->num_heads / args->num_kv_heads; }
  // Position of lane `query`, and the first key that it sees.
  std::int32_t position(std::int32_t query) const {
    return sequence->first_position + (first_query + query) / group();
  }
  std::int32_t first_key(std::int32_t query) const {
    const std::int32_t first = position(query) - args->window + 1;
    return args->window == 0 || first < 0 ? 0 : first;
  }
  std::int32_t last_position() const { return position(num_queries - 1); }
  std::int32_t first_chunk() const { return first_key(0) / kChunkKeys; }
  std::int32_t num_chunks() const { return last_position() / kChunkKeys - first_chunk() + 1; }
};

// Floats of a partial result, [2 + head_dim, lanes]: maxima, sums of weights, weighted values.
constexpr std::int64_t partial_floats(std::int32_t head_dim) {
  return std::int64_t{kBlockQueries} * (2 + head_dim);
}
// Floats that attend_chunk needs: queries by channel, keys, values, weights by key, lane limits.
constexpr std::int64_t block_scratch_floats(std::int32_t head_dim) {
  return std::int64_t{head_dim} * (kBlockQueries + 2 * kTileKeys) +
         std::int64_t{kTileKeys} * kBlockQueries + std::int64_t{2} * kBlockQueries;
}

// All buffers are 64-byte aligned.
struct AttentionBlockOps {
  // Overwrites `partial` with the result of chunk `chunk` (keys chunk * kChunkKeys and on).
  void (*attend_chunk)(const QueryBlock& block, std::int32_t chunk, float* scratch, float* partial);
  // Folds the next chunk into `total`.
  void (*merge)(const QueryBlock& block, const float* partial, float* total);
  // Adds the sink, divides, writes the rows. Overwrites `total`.
  void (*finish)(const QueryBlock& block, float* total);
};

// Compiled for the best instruction set of this processor.
const AttentionBlockOps& attention_block_ops();

}  // namespace nibble::kernels
