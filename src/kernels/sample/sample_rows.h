// A token for each of many rows of logits, where the logits lie: the rules of sample.h, row by row.
//
// A row's token depends on its logits and its own entry alone. On a GPU weights are float32
// exponentials of its own library and sums over the vocabulary are doubles added in another order
// than on the host, so a token may differ where the draw, or the border of a filter, falls within
// the last bits of such a sum (docs/sampling.md); greedy tokens are the same. Every run gives the
// same bits.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/instance.h"
#include "kernels/common/sample_row.h"
#include "kernels/sample/sample.h"
#include "nibble/status.h"
#include "tensor/exec.h"

namespace nibble::kernels {

struct SampleRowsArgs {
  const float* logits = nullptr;       // [num_rows, vocab], not changed
  const SampleRow* rows = nullptr;     // [num_rows]
  const TokenCount* counts = nullptr;  // ids in [0, vocab)
  const LogitBias* logit_bias = nullptr;
  std::int32_t* ids = nullptr;  // [num_rows]; -1 where sample() has no token: NaN, +Inf, all -Inf
  std::int32_t num_rows = 0;
  std::int32_t vocab = 0;
};

// kInvalidArgument: sizes; kUnsupported: a vocabulary larger than the GPU's kernels hold.
Status sample_rows(const SampleRowsArgs& args, const Exec& exec);
Status sample_rows_ref(const SampleRowsArgs& args);

// Every kernel of this build. Tests and benchmarks walk it.
std::span<const Instance<SampleRowsArgs>> sample_rows_instances();

}  // namespace nibble::kernels
