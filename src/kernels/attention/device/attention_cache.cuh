// Rows of the paged cache as the tensor cores take them: bf16, whatever they are stored as.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/attention/device/attention_params.cuh"
#include "kernels/common/e4m3_row.cuh"

namespace nibble::kernels::device {

inline constexpr int kTileHeadDim = 64;

struct E4m3 {  // names a cache of codes with scales (formats/e4m3_row.h)
  std::uint8_t code;
};

__device__ __forceinline__ float load_f32(const E4m3* from) { return cvt_e4m3x2(from->code).x; }

__device__ __forceinline__ uint4 load_16(const __nv_bfloat16* from) {
  return *reinterpret_cast<const uint4*>(from);
}

// Keys or values from some row on, kTileHeadDim channels each.
template <typename Kv>
struct CacheRows;

template <>
struct CacheRows<__nv_bfloat16> {
  const __nv_bfloat16* from;

  __device__ __forceinline__ CacheRows(const void* cache, const std::uint8_t* /*scales*/,
                                       std::int64_t row)
      : from(static_cast<const __nv_bfloat16*>(cache) + row * kTileHeadDim) {}
  // Channels [channel, channel + 8) of a row, a multiple of eight.
  __device__ __forceinline__ uint4 load(int row, int channel) const {
    return load_16(from + row * kTileHeadDim + channel);
  }
};

template <>
struct CacheRows<E4m3> {
  const std::uint8_t* from;
  const std::uint8_t* scales;

  __device__ __forceinline__ CacheRows(const void* cache, const std::uint8_t* all_scales,
                                       std::int64_t row)
      : from(static_cast<const std::uint8_t*>(cache) + row * kTileHeadDim),
        scales(all_scales + row) {}
  __device__ __forceinline__ uint4 load(int row, int channel) const {
    const auto codes = *reinterpret_cast<const uint2*>(from + row * kTileHeadDim + channel);
    return e4m3x8_to_bf16(codes, formats::ue8m0_to_f32(scales[row]));
  }
};

}  // namespace nibble::kernels::device
