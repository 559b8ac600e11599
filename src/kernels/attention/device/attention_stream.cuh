// Many sequences of one row over a cache of bf16: persistent blocks walk (sequence, kv head), and a
// warp has the copy engine bring their keys and values, segment after segment, into a ring in
// shared memory, across sequences: the memory always has a ring of each block to deliver, however
// short the sequences.
//
// Segments, warps and the order in which they are folded are those of attention_decode, and so are
// the bits: which of the two kernels runs may follow from the batch.
#pragma once

#include "kernels/attention/device/attention_decode.cuh"
#include "kernels/common/ptx_bulk.cuh"

namespace nibble::kernels::device {

struct AttentionStream {
  static constexpr int kStages = 6;  // segments on their way to a block
  static constexpr int kBlocks = 2;  // on a multiprocessor
  static constexpr int kThreads = 32 * (kDecodeWarps + 1);
  static constexpr std::uint32_t kHalfBytes = kSegmentKeys * kTileHeadDim * 2;
};

struct StreamShared {
  alignas(128) __nv_bfloat16 keys[AttentionStream::kStages][kSegmentKeys * kTileHeadDim];
  alignas(128) __nv_bfloat16 values[AttentionStream::kStages][kSegmentKeys * kTileHeadDim];
  DecodeShared<1> states;
  std::uint64_t full[AttentionStream::kStages];   // the loading lane, and the bytes it asked for
  std::uint64_t empty[AttentionStream::kStages];  // one a lane of the warp that read it
};

// One query group of one sequence, and the segments of keys that it sees.
struct StreamItem {
  SequenceRange sequence;
  int kv_head;
  int first;  // segment
  int count;  // 0: the sequence has another number of rows

  __device__ __forceinline__ StreamItem(const AttentionParams& params, int index)
      : sequence(params.sequences[index / params.num_kv_heads]),
        kv_head(index % params.num_kv_heads),
        first(first_key(params, sequence.first_position) / kSegmentKeys),
        count(sequence.num_rows == 1 ? sequence.first_position / kSegmentKeys - first + 1 : 0) {}
};

// By one warp: all segments of all items of the block, in order. Lanes look up a page each.
__device__ __forceinline__ void stream_load(const AttentionParams& params, StreamShared& shared,
                                            int num_items) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::uint64_t policy = createpolicy_evict_first();
  int loaded = 0;
  for (int index = static_cast<int>(blockIdx.x); index < num_items;
       index += static_cast<int>(gridDim.x)) {
    const StreamItem item(params, index);
    for (int base = 0; base < item.count; base += 32) {
      const int mine = min(base + lane, item.count - 1);
      const std::int64_t place =
          segment_at(params, item.sequence, item.kv_head, (item.first + mine) * kSegmentKeys);
      const int most = min(32, item.count - base);
      for (int i = 0; i < most; ++i, ++loaded) {
        const std::int64_t at = __shfl_sync(0xFFFFFFFFU, place, i) * kTileHeadDim;
        const int stage = loaded % AttentionStream::kStages;
        if (lane == 0) {
          mbarrier_wait(&shared.empty[stage], loaded / AttentionStream::kStages % 2 == 0 ? 1U : 0U);
          std::uint64_t* const full = &shared.full[stage];
          mbarrier_arrive_expect_tx(full, 2 * AttentionStream::kHalfBytes);
          cp_async_bulk(shared.keys[stage], static_cast<const __nv_bfloat16*>(params.k_cache) + at,
                        AttentionStream::kHalfBytes, full, policy);
          cp_async_bulk(shared.values[stage],
                        static_cast<const __nv_bfloat16*>(params.v_cache) + at,
                        AttentionStream::kHalfBytes, full, policy);
        }
        __syncwarp();
      }
    }
  }
}

// One chunk: each of four warps takes the segment of its place, if it is the item's. `before`: the
// segments of the block's earlier items.
template <int kPasses>
__device__ __forceinline__ void stream_chunk(const AttentionParams& params, StreamShared& shared,
                                             const StreamItem& item, const TileQueries& queries,
                                             int chunk, int before, Folded (&folded)[kPasses]) {
  const int position = item.sequence.first_position;
  const int segment = chunk * kDecodeWarps + static_cast<int>(threadIdx.x / 32);
  const int place = segment - item.first;
  TileState state;
  if (place >= 0 && place < item.count) {
    const int stage = (before + place) % AttentionStream::kStages;
    mbarrier_wait(&shared.full[stage],
                  static_cast<std::uint32_t>((before + place) / AttentionStream::kStages % 2));
    attend_segment<__nv_bfloat16>(params, queries, {shared.keys[stage], nullptr, 0},
                                  {shared.values[stage], nullptr, 0}, segment * kSegmentKeys,
                                  {first_key(params, position), position + 1, false}, state);
    mbarrier_arrive(&shared.empty[stage]);
  }
  finish_totals(state);
  share_state<1>(state, shared.states);
  bar_sync(1, 32 * kDecodeWarps);
  fold_shared<kPasses, 1>(shared.states, folded);
  bar_sync(1, 32 * kDecodeWarps);
}

template <int kPasses>
__device__ __forceinline__ void stream_attend(const AttentionParams& params, StreamShared& shared,
                                              int num_items) {
  const int group = params.num_heads / params.num_kv_heads;
  int before = 0;
  for (int index = static_cast<int>(blockIdx.x); index < num_items;
       index += static_cast<int>(gridDim.x)) {
    const StreamItem item(params, index);
    if (item.count == 0) {
      continue;
    }
    const TileQueries queries = load_queries(params, item.sequence, item.kv_head, 0);
    Folded folded[kPasses];
    for (int chunk = item.first / kDecodeWarps;
         chunk <= (item.first + item.count - 1) / kDecodeWarps; ++chunk) {
      stream_chunk<kPasses>(params, shared, item, queries, chunk, before, folded);
    }
    before += item.count;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int query = folded_query<1>(i);
      if (query < group) {
        store_folded(params, item.sequence, item.kv_head * group + query, folded[i]);
      }
    }
  }
}

// kQueries: at least the heads of a group.
template <int kQueries>
__global__ void __launch_bounds__(AttentionStream::kThreads, AttentionStream::kBlocks)
    attention_stream(const __grid_constant__ AttentionParams params, int num_items) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<StreamShared*>(raw);
  if (threadIdx.x == 0) {
    for (int i = 0; i < AttentionStream::kStages; ++i) {
      mbarrier_init(&shared.full[i], 1);
      mbarrier_init(&shared.empty[i], 32);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  if (threadIdx.x < 32 * kDecodeWarps) {
    stream_attend<kQueries / 2>(params, shared, num_items);
  } else {
    stream_load(params, shared, num_items);
  }
}

}  // namespace nibble::kernels::device
