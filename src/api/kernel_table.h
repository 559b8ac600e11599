// The tables of all kernel families as one list.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kernels/common/instance.h"
#include "kernels/moe/moe_plan.h"

namespace nibble {

struct KernelRow {
  const char* family = nullptr;
  kernels::InstanceInfo info;
  bool is_needed = true;  // a forward pass needs the family
};

// Families in alphabetical order, those of the forward pass first.
std::vector<KernelRow> kernel_rows();

// Whether a kernel of the family was run on hardware of this architecture and compared with the
// scalar reference, which itself counts for nothing. Any instruction set of a processor will do.
bool has_verified_kernel(std::span<const KernelRow> rows, std::string_view family,
                         kernels::Arch arch);

// A plan is verified when this build has a verified kernel to carry it out: sets `verified` and the
// rule that says so. Products over experts are of the family moe, the others of gemm.
void judge_plan(std::span<const KernelRow> rows, const kernels::ProductProblem& problem,
                kernels::Arch arch, kernels::LaunchPlan& plan);

}  // namespace nibble
