// What the sampling kernels of one step read, in one block: rows, then counts, then biases.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sample/sample_rows.h"
#include "model/model.h"
#include "nibble/status.h"

namespace nibble::model {

struct SampleBlock {
  const kernels::SampleRow* rows = nullptr;
  const kernels::TokenCount* counts = nullptr;
  const kernels::LogitBias* logit_bias = nullptr;
  std::int64_t used_bytes = 0;

  // Of the largest step.
  static std::int64_t bytes(std::int32_t max_logit_rows);
  // Writes `batch` to `host`; the pointers are those of a copy at `seen`. kInvalidArgument: more
  // entries than kMostSampleEntries, or not a row for each of `num_logit_rows`.
  static Result<SampleBlock> fill(const SampleBatch& batch, std::int32_t num_logit_rows,
                                  std::byte* host, const std::byte* seen);
};

}  // namespace nibble::model
