// The kernels of this build as JSON, the same from every verb that lists them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "nibble/capabilities.h"

namespace nibble::cli {

// A list of objects: family, name, backend, needs, needed, verified, runnable, reason.
nlohmann::ordered_json kernel_list(const std::vector<KernelCapability>& kernels);

}  // namespace nibble::cli
