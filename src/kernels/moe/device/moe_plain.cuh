// Expert products in float32 arithmetic over rows as published: the check of the fast kernels, and
// what takes float32 inputs. A warp for each row of a product and each token: weights are read
// again for every token, so this is for few tokens.
#pragma once

#include <cstdint>

#include "kernels/common/element.cuh"
#include "kernels/common/ptx_grid.cuh"

namespace nibble::kernels::device {

inline constexpr int kMoePlainWarps = 8;

// Rows of all experts: `blocks` and `scales` of MXFP4, or bf16 `values`.
struct PlainExperts {
  const std::uint8_t* blocks;  // null: bf16
  const std::uint8_t* scales;
  const __nv_bfloat16* values;
  const __nv_bfloat16* bias;  // null: none
};

template <typename X>
struct MoePlainParams {
  const X* x;
  const std::int32_t* ids;
  const float* weights;
  float* out;
  float* h;  // [num_tokens * top_k, intermediate], rounded to X
  PlainExperts gate_up;
  PlainExperts down;
  int hidden;
  int intermediate;
  int top_k;
  float alpha;
  float limit;
};

__device__ __forceinline__ float e2m1_value(std::uint32_t code) {
  // Magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 doubled, a nibble each.
  const float magnitude = 0.5F * static_cast<float>(0xC8643210U >> (4 * (code & 7U)) & 0xFU);
  return (code & 8U) != 0 ? -magnitude : magnitude;
}

// 2^(scale - 127): 0 is a subnormal, 255 is NaN.
__device__ __forceinline__ float ue8m0_value(std::uint32_t scale) {
  if (scale == 0) {
    return __uint_as_float(0x00400000U);
  }
  return scale == 255 ? __uint_as_float(0x7FFFFFFFU) : __uint_as_float(scale << 23U);
}

// Row `row` of all experts' rows times `x`, over the lanes of a warp.
template <typename X>
__device__ __forceinline__ float expert_row(const PlainExperts& experts, std::int64_t row, int cols,
                                            const X* x) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float sum = 0.0F;
  if (experts.blocks == nullptr) {
    for (int col = lane; col < cols; col += 32) {
      sum += load_f32(experts.values + row * cols + col) * load_f32(x + col);
    }
    return warp_sum(sum);
  }
  for (int block = lane; block < cols / 32; block += 32) {
    const std::int64_t at = row * (cols / 32) + block;
    const uint4 packed = __ldg(reinterpret_cast<const uint4*>(experts.blocks) + at);
    const std::uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
    float part = 0.0F;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      part += e2m1_value(words[i / 8] >> (i % 8 * 4)) * load_f32(x + 32 * block + i);
    }
    sum += part * ue8m0_value(experts.scales[at]);
  }
  return warp_sum(sum);
}

__device__ __forceinline__ float plain_bias(const PlainExperts& experts, std::int64_t row) {
  return experts.bias == nullptr ? 0.0F : load_f32(experts.bias + row);
}

// Grid: (intermediate / warps, pairs).
template <typename X>
__global__ void __launch_bounds__(32 * kMoePlainWarps)
    moe_plain_gate_up(const MoePlainParams<X> params) {
  griddepcontrol_wait();
  const int i = static_cast<int>(blockIdx.x * kMoePlainWarps + threadIdx.x / 32);
  if (i >= params.intermediate) {
    return;
  }
  const std::int64_t pair = blockIdx.y;
  const std::int64_t row = std::int64_t{params.ids[pair]} * 2 * params.intermediate + 2 * i;
  const X* x = params.x + pair / params.top_k * params.hidden;
  const float gate =
      expert_row(params.gate_up, row, params.hidden, x) + plain_bias(params.gate_up, row);
  const float up =
      expert_row(params.gate_up, row + 1, params.hidden, x) + plain_bias(params.gate_up, row + 1);
  if (threadIdx.x % 32 == 0) {
    // Written so that a NaN stays one.
    const float g = gate > params.limit ? params.limit : gate;
    const float above = up > params.limit ? params.limit : up;
    const float l = above < -params.limit ? -params.limit : above;
    X rounded;
    store_f32(&rounded, (l + 1.0F) * g / (1.0F + expf(-params.alpha * g)));
    params.h[pair * params.intermediate + i] = load_f32(&rounded);
  }
}

// Grid: (hidden / warps, tokens).
template <typename X>
__global__ void __launch_bounds__(32 * kMoePlainWarps)
    moe_plain_down(const MoePlainParams<X> params) {
  griddepcontrol_wait();
  const int n = static_cast<int>(blockIdx.x * kMoePlainWarps + threadIdx.x / 32);
  if (n >= params.hidden) {
    return;
  }
  const std::int64_t token = blockIdx.y;
  float total = 0.0F;
  for (int slot = 0; slot < params.top_k; ++slot) {
    const std::int64_t pair = token * params.top_k + slot;
    const std::int64_t row = std::int64_t{params.ids[pair]} * params.hidden + n;
    const float y =
        expert_row(params.down, row, params.intermediate, params.h + pair * params.intermediate) +
        plain_bias(params.down, row);
    total += params.weights[pair] * y;
  }
  if (threadIdx.x % 32 == 0) {
    params.out[token * params.hidden + n] += total;
  }
}

}  // namespace nibble::kernels::device
