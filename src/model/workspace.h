// Activations of one step and the paged cache: parts of one block of memory on a host or a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/moe/moe.h"
#include "model/config.h"
#include "model/model.h"
#include "tensor/arena.h"
#include "tensor/exec.h"

namespace nibble::model {

// As the expert kernels take them.
kernels::ExpertInputs expert_inputs(const ModelOptions& options);

// Keys and values of one layer: [num_pages, num_kv_heads, page_size, head_dim] each, and of a cache
// of kE4M3 the scales of their rows [num_pages, num_kv_heads, page_size].
struct LayerCache {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  std::uint8_t* k_scales = nullptr;  // null: there are none
  std::uint8_t* v_scales = nullptr;
};

struct KvCache {
  std::vector<LayerCache> layers;

  static KvCache lay_out(const ModelConfig& config, const ModelOptions& options, Arena& arena);
};

// Row counts are those of the largest plan.
struct Workspace {
  float* residual = nullptr;           // [tokens, hidden]
  std::byte* normed = nullptr;         // [max(tokens, logit rows), hidden] activation dtype
  float* qkv = nullptr;                // [tokens, (heads + 2 kv heads) * head_dim]
  std::byte* q = nullptr;              // [tokens, heads * head_dim] activation dtype
  std::byte* attention = nullptr;      // likewise
  float* router_logits = nullptr;      // [tokens, experts]
  std::int32_t* expert_ids = nullptr;  // [tokens, top_k]
  float* expert_weights = nullptr;     // [tokens, top_k]
  float* logit_inputs = nullptr;       // [logit rows, hidden]
  std::span<std::byte> scratch;        // attention and moe, one after the other
  // On a device only: the host's are the caller's, and its kernels report bad rows at once.
  std::int32_t* slice_offs = nullptr;  // [experts + 1]: routed rows sorted by expert
  std::int32_t* gather = nullptr;      // [tokens, top_k]
  std::int32_t* scatter = nullptr;     // likewise
  float* logits = nullptr;             // [logit rows, vocab]
  // [layers]: first row that the router refused; then whether a decode step gave up a wait
  std::int32_t* bad_rows = nullptr;
  std::byte* sample_block = nullptr;  // SampleBlock::bytes
  std::int32_t* sampled = nullptr;    // [logit rows]: tokens of the last step that sampled

  // `exec` says where the kernels run.
  static Workspace lay_out(const ModelConfig& config, const ModelOptions& options, const Exec& exec,
                           Arena& arena);
};

}  // namespace nibble::model
