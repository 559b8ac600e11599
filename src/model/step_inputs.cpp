#include "model/step_inputs.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace nibble::model {
namespace {

// 16 MiB: page tables of 268 million tokens in pages of 64.
constexpr std::int64_t kMostPages = std::int64_t{1} << 22U;

void place_rows(const SequencePlan& sequence, int group, std::int32_t page_size,
                const StepInputs& host) {
  const PageTable& table = sequence.tables[group];
  for (std::int32_t row = 0; row < sequence.num_rows; ++row) {
    const std::int32_t position = sequence.first_position + row;
    const std::int32_t page = position / page_size - table.first_page;
    NIBBLE_CHECK(page >= 0 && page < static_cast<std::int32_t>(table.pages.size()), position);
    const std::int32_t at = sequence.first_row + row;
    host.positions[at] = position;
    host.slots[group][at] = std::int64_t{table.pages[static_cast<std::size_t>(page)]} * page_size +
                            position % page_size;
  }
}

}  // namespace

StepLimits step_limits(std::int32_t rows, std::int32_t logit_rows, std::int32_t max_position,
                       std::int32_t page_size) {
  const std::int64_t per_sequence = (std::int64_t{max_position} + page_size - 1) / page_size + 1;
  return {
      .rows = rows, .logit_rows = logit_rows, .pages = std::min(rows * per_sequence, kMostPages)};
}

StepInputs StepInputs::lay_out(const StepLimits& limits, Arena& arena) {
  StepInputs out;
  out.token_ids = arena.take<std::int32_t>(limits.rows);
  out.positions = arena.take<std::int32_t>(limits.rows);
  out.logit_rows = arena.take<std::int32_t>(limits.logit_rows);
  for (int group = 0; group < kNumCacheGroups; ++group) {
    out.slots[group] = arena.take<std::int64_t>(limits.rows);
    out.sequences[group] = arena.take<kernels::AttentionSequence>(limits.rows);
  }
  out.pages = arena.take<std::int32_t>(limits.pages * kNumCacheGroups);  // last: copied in part
  return out;
}

Result<StepSizes> fill_step(const BatchPlan& plan, const StepLimits& limits, const StepInputs& host,
                            const StepInputs& kernels_see) {
  std::int64_t num_pages = 0;
  for (const SequencePlan& sequence : plan.sequences) {
    for (const PageTable& table : sequence.tables) {
      num_pages += static_cast<std::int64_t>(table.pages.size());
    }
  }
  if (num_pages > limits.pages * kNumCacheGroups) {
    return error(Code::kExhausted, "page tables of a step: want room for {} pages, found {}",
                 num_pages, limits.pages * kNumCacheGroups);
  }
  std::copy(plan.token_ids.begin(), plan.token_ids.end(), host.token_ids);
  std::copy(plan.logit_rows.begin(), plan.logit_rows.end(), host.logit_rows);
  std::int64_t next_page = 0;
  for (int group = 0; group < kNumCacheGroups; ++group) {
    kernels::AttentionSequence* to = host.sequences[group];
    for (const SequencePlan& sequence : plan.sequences) {
      const PageTable& table = sequence.tables[group];
      *to++ = {.first_row = sequence.first_row,
               .num_rows = sequence.num_rows,
               .first_position = sequence.first_position,
               .pages = kernels_see.pages + next_page,
               .first_page = table.first_page};
      std::copy(table.pages.begin(), table.pages.end(), host.pages + next_page);
      next_page += static_cast<std::int64_t>(table.pages.size());
      place_rows(sequence, group, plan.page_size, host);
    }
  }
  const auto* begin = reinterpret_cast<const std::byte*>(host.token_ids);
  const auto* end = reinterpret_cast<const std::byte*>(host.pages + next_page);
  return StepSizes{.sequences = static_cast<std::int32_t>(plan.sequences.size()),
                   .used_bytes = end - begin};
}

}  // namespace nibble::model
