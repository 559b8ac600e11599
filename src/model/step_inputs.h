// A plan as kernels take it: positions, cache slots and attention ranges of every row, the same for
// all layers of a group. The arrays lie in one block, so that a GPU gets them in one copy.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention/attention.h"
#include "model/batch_plan.h"
#include "nibble/status.h"
#include "tensor/arena.h"

namespace nibble::model {

// Of the largest plan.
struct StepLimits {
  std::int32_t rows = 0;
  std::int32_t logit_rows = 0;
  std::int64_t pages = 0;  // entries of all page tables of a group
};

// Rows up to `max_position` in pages of `page_size`.
StepLimits step_limits(std::int32_t rows, std::int32_t logit_rows, std::int32_t max_position,
                       std::int32_t page_size);

struct StepInputs {
  std::int32_t* token_ids = nullptr;                         // [rows]
  std::int32_t* positions = nullptr;                         // [rows]
  std::int64_t* slots[kNumCacheGroups]{};                    // [rows]
  std::int32_t* logit_rows = nullptr;                        // [logit_rows]
  kernels::AttentionSequence* sequences[kNumCacheGroups]{};  // [rows]
  std::int32_t* pages = nullptr;                             // of both groups

  // Parts for `limits` in one arena: the same places for the same limits.
  static StepInputs lay_out(const StepLimits& limits, Arena& arena);
};

// Where a plan's parts ended up.
struct StepSizes {
  std::int32_t sequences = 0;
  std::int64_t used_bytes = 0;  // from the start of the block
};

// Writes `plan` into `host`. Page tables are addressed through `kernels_see`, the block that
// kernels read: the same one, or its copy on a device. kExhausted when the page tables do not fit.
Result<StepSizes> fill_step(const BatchPlan& plan, const StepLimits& limits, const StepInputs& host,
                            const StepInputs& kernels_see);

}  // namespace nibble::model
