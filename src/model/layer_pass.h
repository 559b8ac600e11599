// The operations of a forward pass, layer by layer, for all rows of a step at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/config.h"
#include "model/kernel_table.h"
#include "model/model.h"
#include "model/model_arrays.h"
#include "model/step_inputs.h"
#include "model/workspace.h"
#include "nibble/status.h"
#include "tensor/exec.h"

namespace nibble {
class Device;
}  // namespace nibble

namespace nibble::model {

// What one step computes.
struct StepRows {
  std::int32_t rows = 0;
  std::int32_t num_logit_rows = 0;
  std::int32_t num_sequences = 0;
  StepInputs inputs;        // as kernels see them
  StepInputs host_inputs;   // as the host sees them
  float* logits = nullptr;  // [num_logit_rows, vocab], where the kernels run
};

// Where a model lies, and with what it computes. All of it must stay.
struct PassParts {
  const ModelConfig& config;
  const ModelOptions& options;
  const KernelTable& kernels;
  const Exec& exec;
  const ModelArrays& arrays;
  const KvCache& cache;
  const Workspace& work;
  const Tap& tap;
  Device* device = nullptr;  // null: the host
  float concentration = 1.0F;
};

class LayerPass {
 public:
  LayerPass(const PassParts& parts, const StepRows& step) : parts_(parts), step_(step) {}

  // Runs every layer, or enqueues it on a device, and writes the logits. kInternal names the layer
  // when a router on the host sees NaN.
  Status run();

 private:
  struct Product {
    const void* x = nullptr;
    float* out = nullptr;
    std::int32_t rows = 0;
    std::int32_t k = 0;
    DType weight_dtype = DType::kBF16;
    bool accumulate = false;
  };

  Status embed();
  Status attention_block(std::size_t index);
  Status attend(std::size_t index);
  Status moe_block(std::size_t index);
  Status route(std::size_t index);
  Status sorted_experts(const LayerArrays& layer);
  Status head();
  Status norm(const float* x, const float* weight, std::int32_t rows);
  Status project(std::span<const kernels::GemmPart> parts, const Product& product);
  // Shows `values` [rows, cols] to the tap, and takes what it makes of them.
  Status tap(TapPlace place, std::size_t layer, float* values, std::int64_t count);

  const PassParts& parts_;
  const StepRows& step_;
};

}  // namespace nibble::model
