// The loops behind `dot_peak`, one for each instruction set.
#pragma once

#include <cstdint>

#include "kernels/common/instance.h"

namespace nibble::kernels {

struct DotLoop {
  void (*run)(std::int64_t rounds) = nullptr;  // null: none for this instruction set
  double operations_per_round = 0.0;
};

// May only be run on a processor that has `isa`.
DotLoop dot_loop(CpuIsa isa);

}  // namespace nibble::kernels
