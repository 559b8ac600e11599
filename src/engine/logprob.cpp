#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "engine/token_request.h"
#include "kernels/sample/sample.h"

namespace nibble::engine {

Result<Logprob> logprob_of(std::span<const float> logits, std::int32_t token,
                           std::int32_t num_top) {
  NIBBLE_ASSIGN_OR_RETURN(const double total, kernels::log_sum_exp(logits));
  const auto logprob = [&](std::int32_t id) {
    return static_cast<float>(logits[static_cast<std::size_t>(id)] - total);
  };
  Logprob out{.logprob = logprob(token)};
  if (num_top > 0) {
    std::vector<std::int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const auto count = std::min<std::size_t>(static_cast<std::size_t>(num_top), order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count),
                      order.end(), [&](std::int32_t a, std::int32_t b) {
                        const float x = logits[static_cast<std::size_t>(a)];
                        const float y = logits[static_cast<std::size_t>(b)];
                        return x > y || (x == y && a < b);
                      });
    for (std::size_t i = 0; i < count; ++i) {
      out.top.emplace_back(order[i], logprob(order[i]));
    }
  }
  return out;
}

}  // namespace nibble::engine
