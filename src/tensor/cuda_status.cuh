// CUDA's error codes as Status, in one place.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/propagate.h"
#include "tensor/device_errors.h"

namespace nibble {

// `what` names the call for the reader: "copy".
inline Status cuda_status(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess) {
    return {};
  }
  return device_call_failed(what, cudaGetErrorString(code), static_cast<int>(code));
}

}  // namespace nibble
