// Short ways to build and pass on a Status. CUDA sources include base/propagate.h only: nvcc does
// not take the consteval format strings.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "base/propagate.h"
#include "nibble/status.h"

namespace nibble {

// Formats with fmt: `error(Code::kCorrupt, "{}: want {} bytes, found {}", path, want, found)`.
template <typename... Args>
Status error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return {code, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace nibble
