// Free list of the physical pages of one cache group.
#pragma once

#include <cstdint>
#include <vector>

namespace nibble::engine {

class PagePool {
 public:
  explicit PagePool(std::int32_t num_pages);

  std::int32_t num_pages() const { return num_pages_; }
  std::int32_t num_free() const { return static_cast<std::int32_t>(free_.size()); }

  bool is_free(std::int32_t page) const { return !is_taken_[static_cast<std::size_t>(page)]; }

  // The pool must not be empty.
  std::int32_t take();
  void give_back(std::int32_t page);

 private:
  std::int32_t num_pages_ = 0;
  std::vector<std::int32_t> free_;  // used as a stack: the page freed last is warm in the caches
  std::vector<bool> is_taken_;
};

}  // namespace nibble::engine
