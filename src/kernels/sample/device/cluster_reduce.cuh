// Reductions and prefix sums over all threads of a cluster, in an order fixed by the thread numbers
// alone. Every thread of the cluster calls them together and gets the same result.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

namespace nibble::kernels::device {

inline constexpr int kClusterBlocks = 8;
inline constexpr int kClusterThreads = 512;  // of a block
inline constexpr int kClusterWarps = kClusterThreads / 32;

template <typename T>
__device__ inline T shuffle_down(T value, int offset) {
  static_assert(sizeof(T) % 4 == 0);
  std::uint32_t words[sizeof(T) / 4];
  memcpy(words, &value, sizeof(T));
  for (std::uint32_t& word : words) {
    word = __shfl_down_sync(0xFFFFFFFFU, word, offset);
  }
  memcpy(&value, words, sizeof(T));
  return value;
}

class Cluster {
 public:
  static constexpr int kMostBytes = 64;  // of a reduced value
  struct Shared {
    alignas(16) std::byte warps[kClusterWarps][kMostBytes];
    // Two of them: a block may write its next value while another still reads the last one.
    alignas(16) std::byte blocks[2][kMostBytes];
  };

  __device__ explicit Cluster(Shared& shared) : shared_(shared) {}

  __device__ int rank() const { return static_cast<int>(group_.block_rank()); }
  // Also orders what threads of the block write and read.
  __device__ void sync() const { group_.sync(); }

  // combine(combine(a, b), c) over the threads, in a fixed order.
  template <typename T, typename Combine>
  __device__ T reduce(T value, Combine&& combine) {
    for (int offset = 16; offset > 0; offset /= 2) {
      value = combine(value, shuffle_down(value, offset));
    }
    if (threadIdx.x % 32 == 0) {
      memcpy(shared_.warps[threadIdx.x / 32], &value, sizeof(T));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int warp = 1; warp < kClusterWarps; ++warp) {
        value = combine(value, load<T>(shared_.warps[warp]));
      }
      memcpy(shared_.blocks[slot_], &value, sizeof(T));
    }
    sync();
    T result = of_block<T>(0);
    for (int block = 1; block < kClusterBlocks; ++block) {
      result = combine(result, of_block<T>(block));
    }
    slot_ ^= 1;
    return result;
  }

  __device__ double sum(double value) {
    return reduce(value, [](double a, double b) { return a + b; });
  }

  // What the threads before this one have, and what all have.
  struct Prefix {
    double before = 0.0;
    double total = 0.0;
  };
  __device__ Prefix scan(double value) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    double inclusive = value;
    for (int offset = 1; offset < 32; offset *= 2) {
      const double left = __shfl_up_sync(0xFFFFFFFFU, inclusive, offset);
      inclusive += lane >= offset ? left : 0.0;
    }
    if (lane == 31) {
      memcpy(shared_.warps[warp], &inclusive, sizeof(double));
    }
    __syncthreads();
    double in_block = 0.0;
    Prefix out;
    for (int other = 0; other < kClusterWarps; ++other) {
      out.before += other < warp ? load<double>(shared_.warps[other]) : 0.0;
      in_block += load<double>(shared_.warps[other]);
    }
    if (threadIdx.x == 0) {
      memcpy(shared_.blocks[slot_], &in_block, sizeof(double));
    }
    sync();
    double before_block = 0.0;
    for (int block = 0; block < kClusterBlocks; ++block) {
      const double sum = of_block<double>(block);
      before_block += block < rank() ? sum : 0.0;
      out.total += sum;
    }
    slot_ ^= 1;
    out.before += before_block + (inclusive - value);
    return out;
  }

 private:
  template <typename T>
  __device__ static T load(const std::byte* from) {
    T value;
    memcpy(&value, from, sizeof(T));
    return value;
  }
  template <typename T>
  __device__ T of_block(int block) const {
    return load<T>(group_.map_shared_rank(&shared_.blocks[slot_][0], block));
  }

  Shared& shared_;
  cooperative_groups::cluster_group group_ = cooperative_groups::this_cluster();
  int slot_ = 0;
};

}  // namespace nibble::kernels::device
