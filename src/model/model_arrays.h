// Where the kernels of a step find a model's weights: in host memory as loaded, or on a device.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/moe/moe.h"
#include "kernels/moe/moe_tiles.h"
#include "model/config.h"
#include "model/model_weights.h"
#include "nibble/status.h"
#include "tensor/arena.h"
#include "tensor/exec.h"
#include "tensor/uploader.h"

namespace nibble::model {

// As LayerWeights, pointers only.
struct LayerArrays {
  const float* attention_norm = nullptr;
  DenseMatrix q;
  DenseMatrix k;
  DenseMatrix v;
  const float* qkv_bias = nullptr;
  const float* sinks = nullptr;
  DenseMatrix o;
  const float* o_bias = nullptr;
  const float* mlp_norm = nullptr;
  DenseMatrix router;
  const float* router_bias = nullptr;
  kernels::ExpertMatrix gate_up;
  kernels::ExpertMatrix down;
  // On a device that multiplies expert tiles: these instead of the rows of `gate_up` and `down`.
  kernels::Mxfp4Tiles gate_up_tiles;
  kernels::Mxfp4Tiles down_tiles;
};

struct ModelArrays {
  DenseMatrix embedding;
  DenseMatrix head;
  const float* final_norm = nullptr;
  const float* inv_freq = nullptr;  // [head_dim / 2]
  std::vector<LayerArrays> layers;
};

// The arrays as they lie in `weights`, which must stay; so must `inv_freq`.
ModelArrays host_arrays(const ModelWeights& weights, const float* inv_freq);

// Whether experts become tiles on a device: MXFP4 with bf16 activations.
bool uses_expert_tiles(const ModelArrays& host, DType activation);

// The same arrays in the memory of `arena`, experts as tiles if wanted. With an arena that only
// measures, nothing but its size is of use.
ModelArrays place_arrays(const ModelArrays& host, const ModelConfig& config, bool has_tiles,
                         Arena& arena);

// Fills what `place_arrays` placed. `make`, if given, may make an array on the device instead of
// copying `from`; it says false for those that it does not know.
using ArrayMaker = std::function<Result<bool>(void* to, const void* from, std::int64_t bytes)>;
Status upload_arrays(const ModelArrays& host, const ModelArrays& device, const ModelConfig& config,
                     Uploader& uploader, const ArrayMaker& make = {});

// Packs experts on the workers of `pool` and fills their tiles. kUnsupported, naming the layer,
// when scales of one expert lie too far apart for tiles.
Status upload_tiles(const ModelArrays& host, const ModelArrays& device, const ModelConfig& config,
                    ThreadPool& pool, Uploader& uploader);

// Instead of both: makes the matrices of `dummy`, which `host` points to, where `exec` says, and
// copies the vectors. What was enqueued on exec.stream may still run.
Status make_arrays(const DummyTensors& dummy, const ModelArrays& host, const ModelArrays& device,
                   const ModelConfig& config, Uploader& uploader, const Exec& exec);

}  // namespace nibble::model
