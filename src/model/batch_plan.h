// One step's work as plain data: what the scheduler decides and the model executes. A recorded plan
// replays.
#pragma once

#include <cstdint>
#include <vector>

namespace nibble::model {

// Pages are counted apart for full layers and for window layers, whose sequences keep only the
// window.
enum class CacheGroup : std::uint8_t { kFull, kWindow };
inline constexpr int kNumCacheGroups = 2;

struct PageTable {
  std::int32_t first_page = 0;      // logical index of pages[0]; earlier pages are freed
  std::vector<std::int32_t> pages;  // physical ids, consecutive logical pages
};

// Consecutive rows of the plan that belong to one sequence.
struct SequencePlan {
  std::int32_t first_row = 0;
  std::int32_t num_rows = 0;
  std::int32_t first_position = 0;
  PageTable tables[kNumCacheGroups];
};

struct BatchPlan {
  std::vector<std::int32_t> token_ids;   // [num_tokens]
  std::vector<SequencePlan> sequences;   // cover all rows in order
  std::vector<std::int32_t> logit_rows;  // rows that need logits, ascending
  std::int32_t page_size = 0;

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(token_ids.size()); }
};

}  // namespace nibble::model
