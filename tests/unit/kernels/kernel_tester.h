// What the tests of all kernel families share: activations of either type, tables, pools.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "kernels/common/element.h"
#include "kernels/common/instance.h"

namespace nibble::kernels {

// Values as stored: float32, or rounded to bf16.
class Stored {
 public:
  Stored(std::span<const float> values, DType dtype)
      : dtype_(dtype), bytes_(values.size() * static_cast<std::size_t>(dtype_bits(dtype)) / 8) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      store_element(bytes_.data(), dtype, static_cast<std::int64_t>(i), values[i]);
    }
  }
  // `count` values that are NaN in every bit.
  Stored(std::int64_t count, DType dtype)
      : dtype_(dtype),
        bytes_(static_cast<std::size_t>(count * dtype_bits(dtype) / 8), std::byte{0xFF}) {}

  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  float at(std::int64_t index) const { return load_element(bytes_.data(), dtype_, index); }
  std::vector<float> values() const {
    std::vector<float> out;
    const auto count = static_cast<std::int64_t>(bytes_.size()) * 8 / dtype_bits(dtype_);
    for (std::int64_t i = 0; i < count; ++i) {
      out.push_back(at(i));
    }
    return out;
  }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

inline std::vector<formats::Bf16> to_bf16(std::span<const float> values) {
  std::vector<formats::Bf16> out;
  for (const float value : values) {
    out.push_back(formats::f32_to_bf16(value));
  }
  return out;
}

// Bits, so that NaN equals itself and -0 differs from 0.
inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// Pools of 1, 2 and 3 workers, made once.
inline std::span<ThreadPool> pools() {
  static ThreadPool all[3] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  return all;
}

// Calls body(row) for each row of a table that this machine can run, with its name in the trace.
template <typename Args, typename Body>
void for_each_runnable(std::span<const Instance<Args>> table, Body&& body) {
  for (const Instance<Args>& row : table) {
    if (runs_here(row.info)) {
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, row.info.name);
      body(row);
    }
  }
}

inline const DType kActivationDtypes[] = {DType::kF32, DType::kBF16};

}  // namespace nibble::kernels
