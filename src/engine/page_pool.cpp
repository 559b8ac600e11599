#include "engine/page_pool.h"

#include "base/check.h"

namespace nibble::engine {

PagePool::PagePool(std::int32_t num_pages)
    : num_pages_(num_pages), is_taken_(static_cast<std::size_t>(num_pages), false) {
  free_.reserve(static_cast<std::size_t>(num_pages));
  for (std::int32_t page = num_pages - 1; page >= 0; --page) {
    free_.push_back(page);
  }
}

std::int32_t PagePool::take() {
  NIBBLE_CHECK(!free_.empty());
  const std::int32_t page = free_.back();
  free_.pop_back();
  is_taken_[static_cast<std::size_t>(page)] = true;
  return page;
}

void PagePool::give_back(std::int32_t page) {
  NIBBLE_CHECK(page >= 0 && page < num_pages_ && is_taken_[static_cast<std::size_t>(page)], page);
  is_taken_[static_cast<std::size_t>(page)] = false;
  free_.push_back(page);
}

}  // namespace nibble::engine
