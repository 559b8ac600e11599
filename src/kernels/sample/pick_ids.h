// Token ids of a step of which some are still on the device: what sample_rows() chose in the step
// before.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/exec.h"

namespace nibble::kernels {

// ids[i] = ids[i] >= 0 ? ids[i] : sampled[-1 - ids[i]], in place.
struct PickIdsArgs {
  std::int32_t* ids = nullptr;            // [count], at least -num_sampled
  const std::int32_t* sampled = nullptr;  // [num_sampled]
  std::int32_t count = 0;
  std::int32_t num_sampled = 0;
};

// An id below -num_sampled becomes -1, as one that sample_rows() could not choose already is.
Status pick_ids(const PickIdsArgs& args, const Exec& exec);
Status pick_ids_ref(const PickIdsArgs& args);

// Every kernel of this build. Tests and benchmarks walk it.
std::span<const Instance<PickIdsArgs>> pick_ids_instances();

}  // namespace nibble::kernels
