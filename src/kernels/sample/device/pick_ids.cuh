// A thread for each id.
#pragma once

#include <cstdint>

namespace nibble::kernels::device {

inline constexpr int kPickThreads = 256;

struct PickIdsParams {
  std::int32_t* ids = nullptr;
  const std::int32_t* sampled = nullptr;
  std::int32_t count = 0;
  std::int32_t num_sampled = 0;
};

__global__ void __launch_bounds__(kPickThreads)
    pick_ids(const __grid_constant__ PickIdsParams args) {
  const int i = static_cast<int>(blockIdx.x) * kPickThreads + static_cast<int>(threadIdx.x);
  if (i < args.count && args.ids[i] < 0) {
    const std::int32_t at = -1 - args.ids[i];
    args.ids[i] = at < args.num_sampled ? args.sampled[at] : -1;
  }
}

}  // namespace nibble::kernels::device
