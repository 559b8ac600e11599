// Whether what was asked of the hardware is there: told apart from a model that cannot be computed.
#pragma once

#include "nibble/engine.h"
#include "nibble/status.h"

namespace nibble::commands {

// kUnsupported, with the reason: `device` is kCuda and there is no GPU that this build can use, or
// `is_deterministic` and the model would be computed on a GPU.
Status check_device(DeviceChoice device, bool is_deterministic);

}  // namespace nibble::commands
