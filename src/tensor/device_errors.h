// What a device can have gone wrong with, as Status.
#pragma once

#include <cstdint>
#include <string_view>

#include "nibble/status.h"
#include "tensor/device_facts.h"

namespace nibble {

// `what` names the call, `text` is the driver's for `code`.
Status device_call_failed(std::string_view what, const char* text, int code);
Status device_memory_exhausted(const DeviceFacts& facts, std::int64_t want_bytes,
                               std::int64_t free_bytes);
Status device_not_usable(const char* text);
Status device_not_there(int index, int count);
// The build has no code for the device.
Status device_without_code(const DeviceFacts& facts);

}  // namespace nibble
