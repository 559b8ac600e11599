// Which kernels ran: each has one bit, in the order in which they were first seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"

namespace nibble {

// Of one thread.
class KernelTrace {
 public:
  static constexpr std::size_t kMostKernels = 64;

  // Forgets what ran, and keeps the bits.
  void begin() { seen_ = 0; }
  // `name` is that of a table's row: it stays where it is.
  void note(const char* name) {
    std::size_t bit = 0;
    while (bit < names_.size() && names_[bit] != name) {
      ++bit;
    }
    if (bit == names_.size()) {
      NIBBLE_CHECK(bit < kMostKernels);
      names_.push_back(name);
    }
    seen_ |= std::uint64_t{1} << bit;
  }
  void add(std::uint64_t kernels) { seen_ |= kernels; }

  // Since the last `begin`.
  std::uint64_t seen() const { return seen_; }
  std::vector<std::string> names(std::uint64_t kernels) const {
    std::vector<std::string> out;
    for (std::size_t bit = 0; bit < names_.size(); ++bit) {
      if (((kernels >> bit) & 1U) != 0) {
        out.emplace_back(names_[bit]);
      }
    }
    return out;
  }

 private:
  std::vector<const char*> names_;
  std::uint64_t seen_ = 0;
};

}  // namespace nibble
