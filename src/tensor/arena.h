// Parts of one block of memory, which is sized before it is taken: the same code runs once over no
// memory, to learn the size, and once over the block, to place the parts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nibble {

class Arena {
 public:
  static constexpr std::int64_t kAlignment = 256;  // of every part

  Arena() = default;  // measures only: every part is null
  // `base` has kAlignment and holds all that is taken.
  explicit Arena(std::byte* base) : base_(base) {}

  template <typename T>
  T* take(std::int64_t count) {
    std::byte* const part = base_ == nullptr ? nullptr : base_ + bytes_;
    bytes_ +=
        (count * static_cast<std::int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(part);
  }

  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace nibble
