// The tables of all kernel families as one list.
#pragma once

#include <vector>

#include "kernels/common/instance.h"

namespace nibble {

struct KernelRow {
  const char* family = nullptr;
  kernels::InstanceInfo info;
};

// In the order of the families' folders.
std::vector<KernelRow> kernel_rows();

}  // namespace nibble
