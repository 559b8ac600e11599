// Words that one block writes and others wait for. A word that is there is no hole, so no barrier
// and no fence stands between: the value itself says that it has come.
#pragma once

#include <cstdint>

#include "kernels/common/ptx_relaxed.cuh"
#include "kernels/decode/device/decode_shared.cuh"

namespace nibble::kernels::device {

// The last ones to tell are not counted: their words are there, or asked for again, sooner than the
// count says so.
inline constexpr std::int32_t kDecodeLate = 16;
inline constexpr std::int64_t kDecodePatienceNs = 10'000'000'000;

__device__ __forceinline__ std::int64_t global_timer() {
  std::int64_t out;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(out));
  return out;
}

// Whether this block waits no more: for good, once one wait was too long.
__device__ __forceinline__ bool is_lost(DecodeShared& shared) {
  if (shared.is_lost == 0 && global_timer() - shared.began_ns > kDecodePatienceNs) {
    shared.is_lost = 1;
  }
  return shared.is_lost != 0;
}
__device__ __forceinline__ bool waits_on(DecodeShared& shared, std::uint32_t tries) {
  return tries % 256 != 0 || !is_lost(shared);
}

__device__ __forceinline__ bool has_hole(std::uint32_t word) { return word == kDecodeHole; }
__device__ __forceinline__ bool has_hole(const uint2& words) {
  return has_hole(words.x) || has_hole(words.y);
}
__device__ __forceinline__ bool has_hole(const uint4& words) {
  return has_hole(words.x) || has_hole(words.y) || has_hole(words.z) || has_hole(words.w);
}

__device__ __forceinline__ void ask(const std::uint32_t* from, std::uint32_t& out) {
  out = ld_relaxed_u32(from);
}
__device__ __forceinline__ void ask(const std::uint32_t* from, uint2& out) {
  out = ld_relaxed_v2(from);
}
__device__ __forceinline__ void ask(const std::uint32_t* from, uint4& out) {
  out = ld_relaxed_v4(from);
}

// Asks for words of places 0 .. kCount - 1 that is_there(i), once; zeros for the rest.
template <int kCount, typename Words, typename IsThere, typename Place>
__device__ __forceinline__ void ask_all(Words (&out)[kCount], const IsThere& is_there,
                                        const Place& place) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    out[i] = {};
    if (is_there(i)) {
      ask(place(i), out[i]);
    }
  }
}
// Asks again for those that are not whole, until all of them are.
template <int kCount, typename Words, typename Place>
__device__ __forceinline__ void settle(Words (&out)[kCount], DecodeShared& shared,
                                       const Place& place) {
  const auto is_whole = [&] {
    bool is = true;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      is = is && !has_hole(out[i]);
    }
    return is;
  };
#pragma unroll 1
  for (std::uint32_t tries = 1; !is_whole() && waits_on(shared, tries); ++tries) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (has_hole(out[i])) {
        ask(place(i), out[i]);
      }
    }
  }
}
template <int kCount, typename Words, typename IsThere, typename Place>
__device__ __forceinline__ void bring(Words (&out)[kCount], DecodeShared& shared,
                                      const IsThere& is_there, const Place& place) {
  ask_all(out, is_there, place);
  settle(out, shared, place);
}

// A hole is a NaN that arithmetic does not give; should one come, it becomes another NaN.
__device__ __forceinline__ void tell(std::uint32_t* to, std::uint32_t word) {
  st_relaxed_u32(to, has_hole(word) ? 0x7FFFFFFFU : word);
}
__device__ __forceinline__ void tell(std::uint32_t* to, float value) {
  tell(to, __float_as_uint(value));
}

__device__ __forceinline__ std::uint32_t* count_at(const DecodeShared& shared, int index,
                                                   DecodeCount which) {
  return shared.words(index, shared.exchange.counts) + static_cast<int>(which) * kDecodeCountWords;
}
// By one thread, behind what it counts.
__device__ __forceinline__ void count_told(const DecodeShared& shared, int index,
                                           DecodeCount which) {
  red_relaxed_add_u32(count_at(shared, index, which), 1);
}
// Until `wanted` have told; all multiplying threads. A hint and no more: nothing orders the words
// before the count, so readers still look for holes, but they rarely find any. Without it every
// thread of every block asks for its words over and over, and L2 has time for little else.
__device__ __forceinline__ void await_count(DecodeShared& shared, int index, DecodeCount which,
                                            int wanted) {
  if (threadIdx.x == 0) {
    const std::uint32_t* at = count_at(shared, index, which);
    std::uint32_t count = ld_relaxed_u32(at);
    for (std::uint32_t tries = 1;
         static_cast<std::int32_t>(count) + 1 < wanted - kDecodeLate && waits_on(shared, tries);
         ++tries) {
      count = ld_relaxed_u32(at);
    }
  }
  sync_multiplying();
}

}  // namespace nibble::kernels::device
