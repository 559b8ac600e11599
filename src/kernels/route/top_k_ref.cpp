#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/route/top_k.h"

namespace nibble::kernels {
namespace {

// Insertion into the sorted list of the best so far; equal values keep the smaller, earlier id.
void choose(const float* logits, std::int32_t num_experts, std::int32_t top_k, std::int32_t* ids) {
  std::int32_t count = 0;
  for (std::int32_t expert = 0; expert < num_experts; ++expert) {
    std::int32_t at = count;
    while (at > 0 && logits[expert] > logits[ids[at - 1]]) {
      --at;
    }
    if (at >= top_k) {
      continue;
    }
    count = std::min(count + 1, top_k);
    for (std::int32_t i = count - 1; i > at; --i) {
      ids[i] = ids[i - 1];
    }
    ids[at] = expert;
  }
}

Status route_row(const TopKArgs& args, std::int32_t row) {
  const float* logits = args.logits + std::int64_t{row} * args.num_experts;
  std::int32_t* ids = args.ids + std::int64_t{row} * args.top_k;
  float* weights = args.weights + std::int64_t{row} * args.top_k;
  for (std::int32_t expert = 0; expert < args.num_experts; ++expert) {
    if (std::isnan(logits[expert]) || logits[expert] == INFINITY) {
      return error(Code::kInternal, "router logit of row {}, expert {} is {}", row, expert,
                   logits[expert]);
    }
  }
  choose(logits, args.num_experts, args.top_k, ids);
  const double largest = logits[ids[0]];
  if (largest == -INFINITY) {
    return error(Code::kInternal, "every router logit of row {} is -inf", row);
  }
  double total = 0.0;
  for (std::int32_t i = 0; i < args.top_k; ++i) {
    total += std::exp(logits[ids[i]] - largest);
  }
  for (std::int32_t i = 0; i < args.top_k; ++i) {
    weights[i] = static_cast<float>(std::exp(logits[ids[i]] - largest) / total);
  }
  return {};
}

}  // namespace

Status top_k_ref(const TopKArgs& args) {
  for (std::int32_t row = 0; row < args.num_valid_rows; ++row) {
    NIBBLE_RETURN_IF_ERROR(route_row(args, row));
  }
  for (std::int32_t row = args.num_valid_rows; row < args.rows; ++row) {
    for (std::int32_t i = 0; i < args.top_k; ++i) {
      args.ids[std::int64_t{row} * args.top_k + i] = i;
      args.weights[std::int64_t{row} * args.top_k + i] = 0.0F;
    }
  }
  return {};
}

}  // namespace nibble::kernels
