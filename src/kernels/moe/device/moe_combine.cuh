// out[t, :] += sum over slots j, ascending, of weights[t, j] * y[scatter[t, j], :], in fp32.
#pragma once

#include <cstdint>

#include "kernels/common/ptx_grid.cuh"

namespace nibble::kernels::device {

struct MoeCombine {
  const float* y = nullptr;               // [rows, hidden], 16-byte aligned
  const std::int32_t* scatter = nullptr;  // [num_tokens, top_k]; -1: the row is elsewhere
  const float* weights = nullptr;         // [num_tokens, top_k]
  float* out = nullptr;                   // [num_tokens, hidden]
  std::int32_t num_tokens = 0;
  std::int32_t hidden = 0;  // multiple of 4
  std::int32_t top_k = 0;
};

inline constexpr int kCombineThreads = 256;

// A template so that several files may hold it.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) moe_combine(const __grid_constant__ MoeCombine args) {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const std::int32_t quads = args.hidden / 4;
  const std::int64_t at =
      std::int64_t{blockIdx.x} * kThreads + static_cast<std::int32_t>(threadIdx.x);
  if (at >= std::int64_t{args.num_tokens} * quads) {
    return;
  }
  const std::int64_t token = at / quads;
  const std::int64_t quad = at % quads;
  auto* out = reinterpret_cast<float4*>(args.out) + at;
  float4 sum = *out;
  for (std::int32_t j = 0; j < args.top_k; ++j) {
    const std::int64_t row = args.scatter[token * args.top_k + j];
    if (row < 0) {
      continue;
    }
    const float weight = args.weights[token * args.top_k + j];
    const float4 y = reinterpret_cast<const float4*>(args.y)[row * quads + quad];
    sum.x = fmaf(weight, y.x, sum.x);
    sum.y = fmaf(weight, y.y, sum.y);
    sum.z = fmaf(weight, y.z, sum.z);
    sum.w = fmaf(weight, y.w, sum.w);
  }
  *out = sum;
}

}  // namespace nibble::kernels::device
