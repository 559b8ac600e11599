// A checkpoint's tensors in the form that the kernels take. Large matrices stay where they are
// mapped; vectors are widened to float32; transposed bf16 experts are turned into rows, layer by
// layer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/moe/moe.h"
#include "model/config.h"
#include "model/dummy_tensors.h"
#include "model/tensor_list.h"
#include "nibble/status.h"
#include "tensor/buffer.h"
#include "weights/checkpoint.h"

namespace nibble::model {

struct DenseMatrix {
  const void* data = nullptr;  // [rows, cols]
  DType dtype = DType::kBF16;
};

// What an ExpertMatrix points to beside the mapped file.
struct OwnedExperts {
  Buffer<formats::Bf16> rows;  // of bf16 experts
  Buffer<float> globals;       // of NVFP4 experts
};

struct LayerWeights {
  Buffer<float> attention_norm;  // [hidden]
  DenseMatrix q;                 // [num_heads * head_dim, hidden]
  DenseMatrix k;                 // [num_kv_heads * head_dim, hidden]
  DenseMatrix v;
  Buffer<float> qkv_bias;     // q, k, v in a row
  Buffer<float> sinks;        // [num_heads]
  DenseMatrix o;              // [hidden, num_heads * head_dim]
  Buffer<float> o_bias;       // [hidden]
  Buffer<float> mlp_norm;     // [hidden]
  DenseMatrix router;         // [num_experts, hidden]
  Buffer<float> router_bias;  // [num_experts]
  kernels::ExpertMatrix gate_up;
  kernels::ExpertMatrix down;
  OwnedExperts gate_up_owned;
  OwnedExperts down_owned;
};

struct ModelWeights {
  std::optional<DummyTensors> dummy;  // what the checkpoint views when there are no files
  weights::Checkpoint checkpoint;     // keeps the mapping alive
  ExpertFormat expert_format = ExpertFormat::kMxfp4;
  DenseMatrix embedding;     // [vocab, hidden]
  DenseMatrix head;          // [vocab, hidden]
  Buffer<float> final_norm;  // [hidden]
  std::vector<LayerWeights> layers;
  std::int64_t owned_bytes = 0;
};

// Opens the checkpoint of `folder`, compares it with the config and takes its tensors. kCorrupt
// with count and first names when they do not fit.
Result<ModelWeights> load_weights(const std::string& folder, const ModelConfig& config);

// Random weights in place of files; matrices are not in memory before `dummy->fill()`.
Result<ModelWeights> make_dummy_weights(const ModelConfig& config, std::uint64_t seed);

}  // namespace nibble::model
