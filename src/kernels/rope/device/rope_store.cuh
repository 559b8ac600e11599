// Threads take pairs of channels of heads of a row: q, k and v heads stand behind each other, as in
// a row of qkv. Where the pairs of a head divide the threads, a thread meets the same channels in
// each of its heads, and takes their sine and cosine once.
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

// Of one pair of channels at one position, times the concentration.
struct Turn {
  float sine;
  float cosine;
};

__device__ __forceinline__ Turn turn_of(std::int32_t position, float inv_freq,
                                        float concentration) {
  Turn turn;
  // The exact product: a position's angle may not depend on how the compiler fuses.
  sincosf(__fmul_rn(static_cast<float>(position), inv_freq), &turn.sine, &turn.cosine);
  turn.sine *= concentration;
  turn.cosine *= concentration;
  return turn;
}

template <typename Out>
__device__ __forceinline__ void store_pair(Out* to, int half, float low, float high) {
  store_f32(to, low);
  store_f32(to + half, high);
}

// One pair of one head; v heads as they are.
template <typename Q, typename Kv>
__device__ __forceinline__ void store_head(const RopeParams<Q, Kv>& params, std::int64_t row,
                                           std::int64_t slot, int head, int j, float low,
                                           float high, const Turn& turn) {
  const int half = params.head_dim / 2;
  const float turned_low = low * turn.cosine - high * turn.sine;
  const float turned_high = high * turn.cosine + low * turn.sine;
  if (head < params.num_heads) {
    store_pair(params.q_out + (row * params.num_heads + head) * params.head_dim + j, half,
               turned_low, turned_high);
    return;
  }
  if (slot < 0) {
    return;
  }
  const int kv_head = (head - params.num_heads) % params.num_kv_heads;
  const std::int64_t page = slot / params.page_size;
  const std::int64_t at = ((page * params.num_kv_heads + kv_head) * params.page_size +
                           (slot - page * params.page_size)) *
                              params.head_dim +
                          j;
  if (head < params.num_heads + params.num_kv_heads) {
    store_pair(params.k_cache + at, half, turned_low, turned_high);
  } else {
    store_pair(params.v_cache + at, half, low, high);
  }
}

// Block (x, y): row x, pairs [y * kRopeThreads * kPairs, ...) of its heads. All pairs of a thread
// are under way before the first is turned.
template <typename Q, typename Kv, int kPairs>
__global__ void __launch_bounds__(kRopeThreads) rope_store(const RopeParams<Q, Kv> params) {
  griddepcontrol_wait();
  const int half = params.head_dim / 2;
  const int num_all = params.num_heads + 2 * params.num_kv_heads;
  const std::int64_t row = blockIdx.x;
  const float* x = params.qkv + row * num_all * params.head_dim;
  const int first = static_cast<int>(blockIdx.y * kRopeThreads * kPairs + threadIdx.x);
  const int first_head = first / half;
  const int j = first % half;
  const int step = kRopeThreads / half;  // heads between a thread's pairs
  float low[kPairs];
  float high[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    if (first_head + i * step < num_all) {
      const float* from = x + (first_head + i * step) * params.head_dim + j;
      low[i] = from[0];
      high[i] = from[half];
    }
  }
  const std::int64_t slot = params.slots[row];
  const Turn turn = turn_of(params.positions[row], params.inv_freq[j], params.concentration);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    if (first_head + i * step < num_all) {
      store_head(params, row, slot, first_head + i * step, j, low[i], high[i], turn);
    }
  }
}

}  // namespace nibble::kernels::device
