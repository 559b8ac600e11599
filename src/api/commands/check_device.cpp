#include "api/commands/check_device.h"

#include "api/device_choice.h"
#include "base/error.h"

namespace nibble::commands {

Status check_device(DeviceChoice device, bool is_deterministic) {
  NIBBLE_ASSIGN_OR_RETURN(const ChosenDevice chosen, choose_device(device));
  return is_deterministic ? check_deterministic(chosen) : Status();
}

}  // namespace nibble::commands
