// What each part of a machine is worth to this build: the rules of capability_rules.h for the
// processor, the GPUs and the libraries. Pure functions.
#pragma once

#include <vector>

#include "api/build_facts.h"
#include "nibble/capabilities.h"
#include "tensor/machine_facts.h"

namespace nibble {

Capability judge_cpu(const MachineFacts& machine);
Capability judge_memory(const MachineFacts& machine);
Capability judge_driver(const MachineFacts& machine, const BuildFacts& build);
// `driver` is what judge_driver said; the name is "gpu " and `index`.
Capability judge_gpu(int index, const GpuFacts& gpu, const Capability& driver,
                     const BuildFacts& build);
// Of more than one GPU, with what judge_gpu said of each.
Capability judge_group(const std::vector<GpuFacts>& gpus,
                       const std::vector<Capability>& judged_gpus);
Capability judge_runtime(const MachineFacts& machine, const BuildFacts& build);
Capability judge_nccl(const MachineFacts& machine, const BuildFacts& build);
Capability judge_flashinfer(const BuildFacts& build);

}  // namespace nibble
