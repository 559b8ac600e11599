// A cluster of blocks holds one row in its shared memory: a block a part, a thread a stretch of it,
// so that the order of ids is the order of threads. Filters look for the least weight that stays by
// bisection over the bits of weights, which are non-negative floats and so ordered as integers.
#pragma once

#include <cstdint>

#include "kernels/common/philox.h"
#include "kernels/common/sample_row.h"
#include "kernels/sample/device/cluster_reduce.cuh"

namespace nibble::kernels::device {

inline constexpr int kMostStretch = 97;  // of a thread: 194 KiB of a block
inline constexpr std::int32_t kMostSampledVocab = kClusterBlocks * kClusterThreads * kMostStretch;

// Odd, so that threads reading their stretches side by side use different banks.
constexpr int stretch_of(std::int32_t vocab) {
  constexpr int kThreads = kClusterBlocks * kClusterThreads;
  return ((vocab + kThreads - 1) / kThreads) | 1;
}

class RowSampler {
 public:
  __device__ RowSampler(const SampleRow& row, float* values, int stretch, Cluster& cluster)
      : row_(row),
        values_(values),
        stretch_(stretch),
        mine_(values + threadIdx.x * stretch),
        first_id_(cluster.rank() * kClusterThreads * stretch),
        cluster_(cluster) {}

  __device__ void load(const float* logits, std::int32_t vocab) {
    const int size = kClusterThreads * stretch_;
#pragma unroll 8
    for (int i = static_cast<int>(threadIdx.x); i < size; i += kClusterThreads) {
      const int id = first_id_ + i;
      values_[i] = id < vocab ? logits[id] : -INFINITY;
    }
    __syncthreads();
  }

  // Penalties, then biases; entries of one id are added in their order, by one thread.
  __device__ void adjust(const TokenCount* counts, const LogitBias* bias) {
    const int size = kClusterThreads * stretch_;
    for (int i = static_cast<int>(threadIdx.x); i < row_.num_counts; i += kClusterThreads) {
      const TokenCount seen = counts[row_.first_count + i];
      const int at = seen.id - first_id_;
      if (at >= 0 && at < size) {
        values_[at] = penalised(values_[at], seen.in_output);
      }
    }
    __syncthreads();
    for (int i = 0; i < row_.num_bias; ++i) {
      const LogitBias entry = bias[row_.first_bias + i];
      const int at = entry.id - first_id_;
      if (at >= 0 && at < size && at % kClusterThreads == static_cast<int>(threadIdx.x)) {
        values_[at] += entry.bias;
      }
    }
    __syncthreads();
  }

  // The id of the row's token, -1 for none.
  __device__ std::int32_t draw() {
    const Best best = largest();
    if (best.has_nan != 0 || best.id < 0 || best.logit == INFINITY) {
      return -1;
    }
    if (row_.temperature == 0.0F) {
      return best.id;
    }
    for (int i = 0; i < stretch_; ++i) {
      mine_[i] = expf((mine_[i] - best.logit) / row_.temperature);
    }
    if (row_.top_k > 0) {
      keep_prefix(row_.top_k, [](float) { return 1.0; });
    }
    if (row_.top_p < 1.0F) {
      const double total = cluster_.sum(sum_of([](float weight) { return double{weight}; }));
      keep_prefix(row_.top_p * total, [](float weight) { return double{weight}; });
    }
    for (int i = 0; i < stretch_; ++i) {
      mine_[i] = mine_[i] >= row_.min_p ? mine_[i] : 0.0F;
    }
    return pick();
  }

 private:
  struct Best {
    float logit = -INFINITY;
    std::int32_t id = -1;
    std::int32_t has_nan = 0;
  };
  // The first and the last id that a draw may end at.
  struct Pick {
    std::int32_t first = INT32_MAX;
    std::int32_t last = -1;
  };
  // A pass of the search takes three bits.
  static constexpr int kPivots = 7;
  struct Sums {
    double of[kPivots];
  };

  // As on the host: no fused operations.
  __device__ float penalised(float logit, std::int32_t in_output) const {
    logit = logit > 0.0F ? __fdiv_rn(logit, row_.repetition_penalty)
                         : __fmul_rn(logit, row_.repetition_penalty);
    if (in_output > 0) {
      const float frequency = __fmul_rn(row_.frequency_penalty, static_cast<float>(in_output));
      logit = __fsub_rn(logit, __fadd_rn(row_.presence_penalty, frequency));
    }
    return logit;
  }

  __device__ std::int32_t my_id(int i) const {
    return first_id_ + static_cast<std::int32_t>(threadIdx.x) * stretch_ + i;
  }

  __device__ Best largest() {
    Best best;
    for (int i = 0; i < stretch_; ++i) {
      best.has_nan |= isnan(mine_[i]) ? 1 : 0;
      if (mine_[i] > best.logit) {
        best.logit = mine_[i];
        best.id = my_id(i);
      }
    }
    return cluster_.reduce(best, [](const Best& a, const Best& b) {
      const bool takes_b = b.logit > a.logit ||
                           (b.logit == a.logit &&
                            static_cast<std::uint32_t>(b.id) < static_cast<std::uint32_t>(a.id));
      Best out = takes_b ? b : a;
      out.has_nan = a.has_nan | b.has_nan;
      return out;
    });
  }

  template <typename Measure>
  __device__ double sum_of(Measure&& measure) const {
    double sum = 0.0;
    for (int i = 0; i < stretch_; ++i) {
      sum += measure(mine_[i]);
    }
    return sum;
  }

  // The largest bits such that all weights of at least as much measure `wanted` together; 0 when
  // all of them do not.
  template <typename Measure>
  __device__ std::uint32_t least_kept(double wanted, Measure&& measure) {
    std::uint32_t found = 0;
    for (int shift = 27; shift >= 0; shift -= 3) {  // no weight is above 1, 0x3F800000
      Sums sums{};
      for (int i = 0; i < stretch_; ++i) {
        const std::uint32_t bits = __float_as_uint(mine_[i]);
        const double share = measure(mine_[i]);
#pragma unroll
        for (int pivot = 0; pivot < kPivots; ++pivot) {
          sums.of[pivot] += bits >= found + ((pivot + 1U) << shift) ? share : 0.0;
        }
      }
      sums = cluster_.reduce(sums, [](Sums a, const Sums& b) {
        for (int pivot = 0; pivot < kPivots; ++pivot) {
          a.of[pivot] += b.of[pivot];
        }
        return a;
      });
      std::uint32_t steps = 0;
      for (int pivot = 0; pivot < kPivots; ++pivot) {
        steps += sums.of[pivot] >= wanted ? 1U : 0U;
      }
      found += steps << shift;
    }
    return found;
  }

  // Keeps the shortest prefix of the weights, largest first and smaller ids first among equal ones,
  // that measures `wanted`; the others become 0.
  template <typename Measure>
  __device__ void keep_prefix(double wanted, Measure&& measure) {
    wanted = fmax(wanted, 1e-300);  // the largest always stays
    const std::uint32_t least = least_kept(wanted, measure);
    if (least == 0) {
      return;
    }
    double above = 0.0;
    double equal = 0.0;
    for (int i = 0; i < stretch_; ++i) {
      const std::uint32_t bits = __float_as_uint(mine_[i]);
      above += bits > least ? measure(mine_[i]) : 0.0;
      equal += bits == least ? 1.0 : 0.0;
    }
    above = cluster_.sum(above);
    double rank = cluster_.scan(equal).before;
    const double share = measure(__uint_as_float(least));
    for (int i = 0; i < stretch_; ++i) {
      const std::uint32_t bits = __float_as_uint(mine_[i]);
      // One more of the equal ones as long as those before do not reach what is wanted.
      const bool stays = bits > least || (bits == least && above + rank * share < wanted);
      rank += bits == least ? 1.0 : 0.0;
      mine_[i] = stays ? mine_[i] : 0.0F;
    }
  }

  __device__ std::int32_t pick() {
    const Cluster::Prefix prefix =
        cluster_.scan(sum_of([](float weight) { return double{weight}; }));
    const double target = uniform(row_.seed, row_.counter) * prefix.total;
    Pick pick;
    double sum = prefix.before;
    for (int i = 0; i < stretch_; ++i) {
      if (mine_[i] > 0.0F) {
        sum += mine_[i];
        pick.last = my_id(i);
        pick.first = sum > target ? min(pick.first, my_id(i)) : pick.first;
      }
    }
    pick = cluster_.reduce(pick, [](const Pick& a, const Pick& b) {
      return Pick{min(a.first, b.first), max(a.last, b.last)};
    });
    return pick.first == INT32_MAX ? pick.last : pick.first;
  }

  const SampleRow& row_;
  float* values_;  // [kClusterThreads * stretch] of this block
  int stretch_;
  float* mine_;
  std::int32_t first_id_;  // of values_[0]
  Cluster& cluster_;
};

struct SampleRowsParams {
  const float* logits = nullptr;
  const SampleRow* rows = nullptr;
  const TokenCount* counts = nullptr;
  const LogitBias* logit_bias = nullptr;
  std::int32_t* ids = nullptr;
  std::int32_t vocab = 0;
};

// Grid: a cluster for each row. Dynamic shared memory: the block's part of the row.
__global__ void __cluster_dims__(kClusterBlocks, 1, 1) __launch_bounds__(kClusterThreads, 2)
    sample_rows(const __grid_constant__ SampleRowsParams args) {
  extern __shared__ float values[];
  __shared__ Cluster::Shared shared;
  const std::int64_t index = blockIdx.x / kClusterBlocks;
  const SampleRow row = args.rows[index];
  Cluster cluster(shared);
  RowSampler sampler(row, values, stretch_of(args.vocab), cluster);
  sampler.load(args.logits + index * args.vocab, args.vocab);
  sampler.adjust(args.counts, args.logit_bias);
  const std::int32_t id = sampler.draw();
  if (cluster.rank() == 0 && threadIdx.x == 0) {
    args.ids[index] = id;
  }
  cluster.sync();  // others may still read what this block holds
}

}  // namespace nibble::kernels::device
