// What this machine and this build can do, each answer with its reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nibble {

/// One thing that nibble can use, found or not.
struct Capability {
  std::string name;        ///< "cpu", "memory", "gpu driver", "gpu 0", "gpu group", "nccl", ...
  std::string version;     ///< as found; empty when there is none
  std::string place;       ///< where it was found; empty: nowhere
  bool is_usable = false;  ///< by this build, on this machine
  std::string reason;      ///< why not; when usable, a warning or nothing
};

/// One compiled kernel.
struct KernelCapability {
  std::string family;
  std::string name;
  std::string backend;       ///< "scalar", "cpu" or "cuda"
  std::string needs;         ///< "any", "avx512_bf16", "sm_90", ...
  bool is_needed = false;    ///< the forward pass of a model needs the family
  bool is_verified = false;  ///< was run on its hardware
  bool is_runnable = false;  ///< selection may choose it on this machine
  std::string reason;        ///< why it is not
};

struct Capabilities {
  std::vector<Capability> items;
  std::vector<KernelCapability> kernels;
  bool can_run = false;     ///< every needed family has a runnable kernel
  std::string backend;      ///< what will be used: "cuda" or "cpu"; empty when nothing can run
  std::string explanation;  ///< why that one, or why nothing
};

/// Probes this machine: CPU, memory, driver, GPUs, libraries. Libraries are opened, nothing is
/// allocated on a device. Never fails: what is missing or broken is an item with its reason.
Capabilities capabilities();

}  // namespace nibble
