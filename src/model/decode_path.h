// Steps of one row on a GPU as one persistent kernel (kernels/decode): when, and with what.
#pragma once

#include <string>
#include <vector>

#include "kernels/decode/decode_step.h"
#include "model/config.h"
#include "model/model.h"
#include "model/model_arrays.h"
#include "model/step_inputs.h"
#include "model/workspace.h"
#include "nibble/status.h"
#include "tensor/arena.h"
#include "tensor/device.h"

namespace nibble::model {

kernels::DecodeSizes decode_sizes(const ModelConfig& config, const ModelOptions& options,
                                  const Exec& exec);

// Ok where a step of one row whose logits are wanted goes to the persistent kernel: not
// DecodePath::kGraph, bf16 activations and cache, MXFP4 experts in tiles, bf16 dense weights,
// head_dim 64, and decode_step_supports(). Else kUnsupported with what was wanted and found.
Status decode_step_rule(const ModelArrays& host, const ModelConfig& config,
                        const ModelOptions& options, const Exec& exec);

// Parts of a model on a device.
struct DecodeParts {
  const ModelArrays& arrays;
  const KvCache& cache;
  const StepInputs& inputs;  // of one row
  const Workspace& work;
  float concentration = 1.0F;
};

// The persistent kernel of one model: whether it is chosen, its memory, its call.
class DecodeStep {
 public:
  // On a device, before anything is laid out. kUnsupported: DecodePath::kPersistent against the
  // rule.
  Status decide(const ModelArrays& host, const ModelConfig& config, const ModelOptions& options,
                const Exec& exec);
  bool is_chosen() const { return is_decided_ && rule_.ok(); }
  // Model::decode_path().
  std::string description() const;

  void lay_out(Arena& arena) {
    if (is_chosen()) {
      exchange_ = arena.take<std::uint32_t>(kernels::decode_step_exchange_bytes(sizes_) / 4);
    }
  }
  // Enqueues a step.
  Status run(Device& device, const ModelConfig& config, DecodeParts parts,
             Status (*kernel)(const kernels::DecodeStepArgs& args, const Exec& exec),
             const Exec& exec);

 private:
  kernels::DecodeSizes sizes_;
  Status rule_;
  bool is_decided_ = false;
  std::uint32_t* exchange_ = nullptr;
  std::vector<kernels::DecodeLayer> layers_;
};

}  // namespace nibble::model
