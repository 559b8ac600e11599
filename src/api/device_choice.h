// Where a model is computed: what was asked for, and why that or something else is taken.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "api/kernel_table.h"
#include "model/model.h"
#include "nibble/engine.h"
#include "nibble/status.h"
#include "tensor/device_facts.h"

namespace nibble {

struct ChosenDevice {
  model::KernelChoice kernels = model::KernelChoice::kCpu;
  std::int64_t free_bytes = 0;  // of the GPU; 0: the processor
  std::string reason;           // one line: "cuda: NVIDIA H200", "cpu: this build has no ..."
};

// What can be computed on this GPU: the first needed family without a verified kernel, or "".
std::string missing_family(std::span<const KernelRow> rows, const DeviceFacts& facts);

// kAuto takes the first GPU if it can be opened and every family that a forward pass needs has a
// verified kernel for it, else the processor. kCuda fails with the reason instead: kUnsupported.
Result<ChosenDevice> choose_device(DeviceChoice choice);

// Ok where a row's bits depend on nothing but its own sequence: on the processor. kUnsupported on a
// GPU, where they depend on how many rows its step has (docs/scheduling.md).
Status check_deterministic(const ChosenDevice& device);

}  // namespace nibble
