// A block for each row; a thread sums every kThreads-th group of four columns.
#pragma once

#include "kernels/common/element.cuh"
#include "kernels/common/ptx_grid.cuh"

namespace nibble::kernels::device {

inline constexpr int kNormThreads = 256;

template <typename Out>
__global__ void __launch_bounds__(kNormThreads)
    rms_norm(const float* x, const float* weight, Out* out, int cols, float eps) {
  griddepcontrol_wait();
  __shared__ float sums[kNormThreads / 32];
  const float4* row = reinterpret_cast<const float4*>(x + std::int64_t{blockIdx.x} * cols);
  float sum = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < cols / 4; i += kNormThreads) {
    const float4 v = row[i];
    sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  float total = 0.0F;
#pragma unroll
  for (int warp = 0; warp < kNormThreads / 32; ++warp) {
    total += sums[warp];
  }
  const float scale = 1.0F / sqrtf(total / static_cast<float>(cols) + eps);
  Out* to = out + std::int64_t{blockIdx.x} * cols;
  // `out` may be `x`: each thread writes only what it alone reads.
  for (int i = static_cast<int>(threadIdx.x); i < cols / 4; i += kNormThreads) {
    const float4 v = row[i];
    const float4 w = reinterpret_cast<const float4*>(weight)[i];
    store_f32(to + 4 * i, v.x * scale * w.x);
    store_f32(to + 4 * i + 1, v.y * scale * w.y);
    store_f32(to + 4 * i + 2, v.z * scale * w.z);
    store_f32(to + 4 * i + 3, v.w * scale * w.w);
  }
  griddepcontrol_launch_dependents();
}

}  // namespace nibble::kernels::device
