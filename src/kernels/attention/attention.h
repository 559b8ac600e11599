// Causal attention over a paged cache, with a sink and an optional window; grouped heads.
//
//   s_k = scale * q . K_k     over keys  max(0, t - window + 1) <= k <= t   (window 0: all k <= t)
//   m = max(sink_h, max_k s_k)
//   out = sum_k exp(s_k - m) V_k / (exp(sink_h - m) + sum_k exp(s_k - m))
//
// The sink has no value vector and is not scaled. Query head h reads kv head h / (num_heads /
// num_kv_heads). Accumulation is fp32 (max, sum and output), in an order fixed by the position t
// alone, so a row's bits do not depend on the chunking or on the batch. CUDA kernels keep that
// apart for sequences of one row and of several: the two orders differ. On a processor a cache of
// kE4M3 gives the bits of one that holds its values in a wider type.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/attention_sequence.h"
#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/dtype.h"
#include "tensor/exec.h"

namespace nibble::kernels {

struct AttentionArgs {
  const void* q = nullptr;        // [rows, num_heads, head_dim] q_dtype
  const void* k_cache = nullptr;  // [num_pages, num_kv_heads, page_size, head_dim] kv_dtype
  const void* v_cache = nullptr;  // likewise
  // [num_pages, num_kv_heads, page_size] ue8m0 (formats/e4m3_row.h), kE4M3 only.
  const std::uint8_t* k_scales = nullptr;
  const std::uint8_t* v_scales = nullptr;
  const float* sinks = nullptr;  // [num_heads] or null
  void* out = nullptr;           // [rows, num_heads, head_dim] q_dtype
  // On a GPU, `pages` point to device memory and `device_sequences` to the same sequences there.
  std::span<const AttentionSequence> sequences;
  const AttentionSequence* device_sequences = nullptr;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;  // multiple of 8, at most 256
  std::int32_t page_size = 0;
  std::int32_t window = 0;  // keys seen, the current one included; 0: all
  float scale = 1.0F;
  DType q_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;  // kF32, kBF16 or kE4M3
  // Scratch of at least attention_workspace_bytes(); 64-byte aligned.
  std::span<std::byte> workspace;
};

Status attention(const AttentionArgs& args, const Exec& exec);
Status attention_ref(const AttentionArgs& args);
// Upper bound for `num_rows` query rows in all and keys below `max_position`, where `exec` says.
std::int64_t attention_workspace_bytes(const AttentionArgs& args, std::int32_t num_rows,
                                       std::int32_t max_position, const Exec& exec);
std::int64_t attention_bytes(const AttentionArgs& args);

// Every kernel of this build. Tests and benchmarks walk it.
std::span<const Instance<AttentionArgs>> attention_instances();

}  // namespace nibble::kernels
