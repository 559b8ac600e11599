// A thread for each pair of channels of each head: q, k and v heads stand behind each other, as in
// a row of qkv.
#pragma once

#include <cstdint>

#include "kernels/common/element.cuh"
#include "kernels/common/ptx_grid.cuh"

namespace nibble::kernels::device {

inline constexpr int kRopeThreads = 128;

template <typename Q, typename Kv>
struct RopeParams {
  const float* qkv;
  const std::int32_t* positions;
  const std::int64_t* slots;
  const float* inv_freq;
  Q* q_out;
  Kv* k_cache;
  Kv* v_cache;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int page_size;
  float concentration;
};

template <typename Out>
__device__ __forceinline__ void store_pair(Out* to, int half, float low, float high) {
  store_f32(to, low);
  store_f32(to + half, high);
}

template <typename Q, typename Kv>
__global__ void __launch_bounds__(kRopeThreads) rope_store(const RopeParams<Q, Kv> params) {
  griddepcontrol_wait();
  const int half = params.head_dim / 2;
  const int num_all = params.num_heads + 2 * params.num_kv_heads;
  const int pair = static_cast<int>(blockIdx.x * kRopeThreads + threadIdx.x);
  if (pair >= num_all * half) {
    return;
  }
  const int head = pair / half;
  const int j = pair % half;
  const std::int64_t row = blockIdx.y;
  const float* x = params.qkv + (row * num_all + head) * params.head_dim + j;
  const float low = x[0];
  const float high = x[half];
  const int kv_head = (head - params.num_heads) % params.num_kv_heads;
  const std::int64_t slot = params.slots[row];
  if (head >= params.num_heads && slot < 0) {
    return;
  }
  const std::int64_t cache_at =
      ((slot / params.page_size * params.num_kv_heads + kv_head) * params.page_size +
       slot % params.page_size) *
          params.head_dim +
      j;
  if (head >= params.num_heads + params.num_kv_heads) {
    store_pair(params.v_cache + cache_at, half, low, high);
    return;
  }
  float sine = 0.0F;
  float cosine = 0.0F;
  // The exact product: a position's angle may not depend on how the compiler fuses.
  sincosf(__fmul_rn(static_cast<float>(params.positions[row]), params.inv_freq[j]), &sine, &cosine);
  sine *= params.concentration;
  cosine *= params.concentration;
  const float turned_low = low * cosine - high * sine;
  const float turned_high = high * cosine + low * sine;
  if (head < params.num_heads) {
    store_pair(params.q_out + (row * params.num_heads + head) * params.head_dim + j, half,
               turned_low, turned_high);
  } else {
    store_pair(params.k_cache + cache_at, half, turned_low, turned_high);
  }
}

}  // namespace nibble::kernels::device
