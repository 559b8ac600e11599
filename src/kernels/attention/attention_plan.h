// How a call of the CUDA kernels is cut up: a pure function of the sequences and the limits.
//
// Sequences of one row are cut into chunks of keys whose partial results lie in the workspace;
// those that do not fit there together are done in waves. Neither changes a bit of the result.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"

namespace nibble::kernels {

inline constexpr std::int32_t kGpuChunkKeys = 256;
inline constexpr std::int64_t kGpuPartialBytes = std::int64_t{4} * (2 + 64);  // of a chunk and head

struct AttentionCudaPlan {
  std::int32_t decode_sequences = 0;  // of one row
  std::int32_t prefill_rows = 0;      // of the longest other sequence
  std::int32_t max_chunks = 1;        // of a decoding sequence, a power of two
  std::int32_t chunks_per_block = 1;  // max_chunks: no partial results
  std::int32_t wave = 0;              // sequences that have partial results at a time
};

AttentionCudaPlan plan_attention_cuda(const AttentionArgs& args);

// Whether sequences of one row are streamed by persistent blocks, each sequence and kv head by one:
// when these fill every block and none is so long that the others would wait for it. Follows from
// the number of sequences and the plan's rounded length alone, as a captured launch must.
bool is_streamed(const AttentionCudaPlan& plan, std::int32_t num_kv_heads, std::int32_t num_sms);

// Of partial results, for `num_rows` rows up to `max_position`: enough for one sequence, and for
// all up to a limit that keeps waves long.
std::int64_t attention_cuda_workspace_bytes(const AttentionArgs& args, std::int32_t num_rows,
                                            std::int32_t max_position);

}  // namespace nibble::kernels
