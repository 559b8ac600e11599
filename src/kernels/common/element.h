// Activations in memory are float32 or bf16; sums are float32 or wider.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/bf16.h"
#include "tensor/dtype.h"

namespace nibble::kernels {

inline float load_element(const void* data, DType dtype, std::int64_t index) {
  return dtype == DType::kF32 ? static_cast<const float*>(data)[index]
                              : bf16_to_f32(static_cast<const formats::Bf16*>(data)[index]);
}

// Rounds to nearest even for bf16.
inline void store_element(void* data, DType dtype, std::int64_t index, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<formats::Bf16*>(data)[index] = formats::f32_to_bf16(value);
  }
}

inline bool is_activation_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16;
}

// `data` moved by `index` elements.
inline const void* element_at(const void* data, DType dtype, std::int64_t index) {
  return static_cast<const std::byte*>(data) + index * dtype_bits(dtype) / 8;
}
inline void* element_at(void* data, DType dtype, std::int64_t index) {
  return static_cast<std::byte*>(data) + index * dtype_bits(dtype) / 8;
}

}  // namespace nibble::kernels
