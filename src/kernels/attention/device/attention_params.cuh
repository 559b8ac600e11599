// What the attention kernels take, and what they compute of a sequence.
#pragma once

#include <cstdint>

namespace nibble::kernels::device {

// Twin of AttentionSequence, which lies in device memory; attention_launch.cuh holds them together.
struct SequenceRange {
  std::int32_t first_row;
  std::int32_t num_rows;
  std::int32_t first_position;
  const std::int32_t* pages;
  std::int32_t first_page;
};

struct AttentionParams {
  const void* q;
  const void* k_cache;
  const void* v_cache;
  const std::uint8_t* k_scales;  // of e4m3 alone
  const std::uint8_t* v_scales;
  const float* sinks;  // null: none
  void* out;
  const SequenceRange* sequences;
  float* partials;  // of chunks: attention_plan.h
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int page_size;
  int window;
  int max_chunks;        // of a sequence in this call
  int chunks_per_block;  // at least max_chunks: blocks write the result themselves
  float scale;
};

__device__ __forceinline__ int first_key(const AttentionParams& params, int position) {
  return params.window == 0 ? 0 : max(0, position - params.window + 1);
}

}  // namespace nibble::kernels::device
