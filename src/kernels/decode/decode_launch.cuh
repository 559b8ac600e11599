// Typed launch of the decode kernel: cooperative, so that all blocks are resident or none starts.
#pragma once

#include <algorithm>

#include "kernels/common/launch.cuh"
#include "kernels/decode/decode_step.h"
#include "kernels/decode/device/decode_kernel.cuh"

namespace nibble::kernels {

inline constexpr std::size_t kDecodeSharedBytes = sizeof(device::DecodeShared);

// Once: shared memory, and whether a block fits on a multiprocessor.
inline Status allow_decode_step() {
  NIBBLE_RETURN_IF_ERROR(
      allow_shared_bytes("decode_step", device::decode_step, kDecodeSharedBytes));
  int blocks = 0;
  NIBBLE_RETURN_IF_ERROR(cuda_status(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(
          &blocks, device::decode_step, device::DecodeConfig::kThreads, kDecodeSharedBytes),
      "decode_step occupancy"));
  if (blocks < 1) {
    return decode_step_not_resident(device::DecodeConfig::kThreads, kDecodeSharedBytes);
  }
  return {};
}

inline Status launch_decode_step(const DecodeStepArgs& args, const Exec& exec) {
  static const Status kAllowed = allow_decode_step();
  NIBBLE_RETURN_IF_ERROR(Status(kAllowed));
  device::DecodeParams params{.args = args, .exchange = DecodeExchange(args.sizes), .layers = {}};
  std::copy(args.layers.begin(), args.layers.end(), params.layers);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.sizes.num_blocks)),
                          .block = dim3(device::DecodeConfig::kThreads),
                          .shared_bytes = kDecodeSharedBytes,
                          .is_cooperative = true};
  return launch("decode_step", device::decode_step, shape, exec, params);
}

}  // namespace nibble::kernels
