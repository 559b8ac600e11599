// Room on a disk, asked for before writing what would fill it.
#pragma once

#include <cstdint>
#include <string>

#include "nibble/status.h"

namespace nibble {

// kNotFound when `folder` is not there, kExhausted when its file system has fewer than `bytes` free
// for us; the message names both numbers.
Status check_disk_space(const std::string& folder, std::int64_t bytes);

}  // namespace nibble
