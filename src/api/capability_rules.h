// The judgement behind `capabilities()`: a pure function of what was found and what was built.
#pragma once

#include <span>

#include "api/build_facts.h"
#include "api/kernel_table.h"
#include "nibble/capabilities.h"
#include "tensor/machine_facts.h"

namespace nibble {

// The rules, in the order in which they are asked; the first that fails gives the reason.
//
// GPU driver: libcuda opens; has every function needed; initialises; the build has CUDA kernels;
//   its CUDA version has at least the major number of the build's runtime (a smaller minor number
//   is a warning: minor versions are compatible).
// GPU: the driver is usable; the driver answers about it; compute capability 9.0 or newer; the
//   build holds an image that it runs. A capability that no rule names is a warning.
// GPU group: every GPU is usable and all have the same name and capability.
// NCCL: the build uses it; it opens; has every function needed; major number 2; at least the
// version
//   compiled against.
// Kernel: verified, and its instruction set is there or a usable GPU has its capability.
//
// CUDA is used when every needed family has a runnable CUDA kernel, else the CPU, with the reason.
Capabilities evaluate(const MachineFacts& machine, const BuildFacts& build,
                      std::span<const KernelRow> kernels);

}  // namespace nibble
