// Rows of a paged cache, widened and stored: one head's keys or values at one position.
//
//   elements  [num_pages, num_kv_heads, page_size, head_dim] dtype
//   scales    [num_pages, num_kv_heads, page_size] ue8m0, of e4m3 alone (formats/e4m3_row.h)
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "formats/e4m3_row.h"
#include "kernels/common/element.h"
#include "tensor/dtype.h"

namespace nibble::kernels {

inline bool is_cache_dtype(DType dtype) {
  return is_activation_dtype(dtype) || dtype == DType::kE4M3;
}

// Where a row lies, in rows of a cache.
inline std::int64_t cache_row(std::int64_t page, std::int32_t num_kv_heads, std::int32_t kv_head,
                              std::int32_t page_size, std::int64_t offset) {
  return (page * num_kv_heads + kv_head) * page_size + offset;
}

inline float load_cache(const void* cache, const std::uint8_t* scales, DType dtype,
                        std::int64_t row, std::int32_t head_dim, std::int32_t channel) {
  const std::int64_t at = row * head_dim + channel;
  return dtype == DType::kE4M3
             ? formats::e4m3_row_value(static_cast<const std::uint8_t*>(cache)[at], scales[row])
             : load_element(cache, dtype, at);
}

inline std::uint8_t row_scale(std::span<const float> values) {
  float amax = 0.0F;
  bool is_finite = true;
  for (const float value : values) {
    is_finite = is_finite && std::isfinite(value);
    amax = std::isfinite(value) && std::abs(value) > amax ? std::abs(value) : amax;
  }
  return formats::e4m3_row_scale(amax, is_finite);
}

inline void store_cache(void* cache, std::uint8_t* scales, DType dtype, std::int64_t row,
                        std::span<const float> values) {
  const std::int64_t at = row * static_cast<std::int64_t>(values.size());
  const std::uint8_t scale = dtype == DType::kE4M3 ? row_scale(values) : 0;
  if (dtype == DType::kE4M3) {
    scales[row] = scale;
  }
  for (std::size_t j = 0; j < values.size(); ++j) {
    const auto to = at + static_cast<std::int64_t>(j);
    if (dtype == DType::kE4M3) {
      static_cast<std::uint8_t*>(cache)[to] = formats::e4m3_row_code(values[j], scale);
    } else {
      store_element(cache, dtype, to, values[j]);
    }
  }
}

}  // namespace nibble::kernels
