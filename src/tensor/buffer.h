// Host memory with a 64-byte aligned start. Large buffers ask for huge pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/check.h"

namespace nibble {

inline constexpr std::size_t kHostAlignment = 64;
inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;

// Contents start unspecified. Running out of memory ends the program: sizes are planned before.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t count) : count_(count) {
    const std::size_t alignment =
        count * sizeof(T) >= kHugePageBytes ? kHugePageBytes : kHostAlignment;
    const std::size_t bytes = (count * sizeof(T) + alignment - 1) / alignment * alignment;
    if (bytes > 0) {
      data_.reset(static_cast<T*>(std::aligned_alloc(alignment, bytes)));
      NIBBLE_CHECK(data_ != nullptr, bytes);
      if (alignment == kHugePageBytes) {
        (void)::madvise(data_.get(), bytes, MADV_HUGEPAGE);  // advice only
      }
    }
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return count_; }
  std::size_t size_bytes() const { return count_ * sizeof(T); }
  std::span<T> span() { return {data(), count_}; }
  std::span<const T> span() const { return {data(), count_}; }
  T& operator[](std::size_t index) { return data_.get()[index]; }
  const T& operator[](std::size_t index) const { return data_.get()[index]; }

 private:
  struct Free {
    void operator()(T* pointer) const { std::free(pointer); }
  };
  std::unique_ptr<T[], Free> data_;
  std::size_t count_ = 0;
};

}  // namespace nibble
