// Router of gpt-oss: the k largest logits of each row, softmax over those k.
//
//   ids[r, :]     = indices of the k largest logits[r, :], largest first; ties go to the smaller
//   index weights[r, i] = exp(logits[r, ids[r, i]] - logits[r, ids[r, 0]]) / sum_i ...
//
// Rows at and beyond num_valid_rows are padding: they get ids 0..k-1 and weights 0, whatever their
// logits.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/exec.h"

namespace nibble::kernels {

struct TopKArgs {
  const float* logits = nullptr;  // [rows, num_experts]
  std::int32_t* ids = nullptr;    // [rows, top_k]
  float* weights = nullptr;       // [rows, top_k]
  std::int32_t rows = 0;
  std::int32_t num_valid_rows = 0;  // <= rows
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;  // 1..num_experts
  // GPU: in device memory or null; takes the minimum of its value and the first row that the rules
  // below refuse, since the call itself does not wait for the kernel.
  std::int32_t* bad_row = nullptr;
};

// kInternal, naming the row, when a valid row holds a NaN or no finite or +Inf-free softmax exists
// (+Inf). -Inf is allowed: it is chosen last and gets weight 0 unless all chosen are -Inf (then
// kInternal).
Status top_k(const TopKArgs& args, const Exec& exec);
Status top_k_ref(const TopKArgs& args);

// Every kernel of this build. Tests and benchmarks walk it.
std::span<const Instance<TopKArgs>> top_k_instances();

}  // namespace nibble::kernels
