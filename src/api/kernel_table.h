// The tables of all kernel families as one list.
#pragma once

#include <vector>

#include "kernels/common/instance.h"

namespace nibble {

struct KernelRow {
  const char* family = nullptr;
  kernels::InstanceInfo info;
  bool is_needed = true;  // a forward pass needs the family
};

// Families in alphabetical order, those of the forward pass first.
std::vector<KernelRow> kernel_rows();

}  // namespace nibble
