// Where a model lies: one block of memory on a host or a device, planned before it is taken, with
// cache, activations and weights in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "model/config.h"
#include "model/decode_path.h"
#include "model/model.h"
#include "model/model_arrays.h"
#include "model/model_weights.h"
#include "model/step_inputs.h"
#include "model/workspace.h"
#include "nibble/status.h"
#include "tensor/arena.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/exec.h"

namespace nibble::model {

struct Placement {
  // The device before what lies on it.
  std::unique_ptr<Device> device;  // null: the host
  Device::OwnedStream stream;
  Exec exec;
  Device::Memory device_memory;
  Buffer<std::byte> host_memory;

  ModelArrays arrays;
  KvCache cache;
  Workspace work;
  std::byte* input_block = nullptr;  // StepInputs as kernels read them
  DecodeStep decode_step;
  MemoryPlan memory;
};

// What is placed. `inv_freq`, `pool` and `trace` must outlive the placement, `weights` too on a
// host; on a device they are gone once they are there.
struct Placed {
  const ModelConfig& config;
  const ModelOptions& options;
  std::optional<ModelWeights>& weights;
  const std::vector<float>& inv_freq;
  ThreadPool& pool;
  KernelTrace& trace;
};

// Bytes of the inputs of the largest step.
std::int64_t input_bytes(const ModelOptions& options);

// kUnsupported: no such device; kExhausted: what does not fit, with the numbers.
Status place_on_host(const Placed& what, Placement& to);
Status place_on_device(const Placed& what, Placement& to);

}  // namespace nibble::model
