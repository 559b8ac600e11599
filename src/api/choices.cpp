#include "nibble/choices.h"

#include <algorithm>
#include <numeric>

#include "api/choice_sampling.h"
#include "kernels/sample/sample.h"

namespace nibble {
namespace {

// 53 bits, which every JSON reader keeps. The counter's upper half is apart from those of draws.
std::uint64_t seed_of(std::uint64_t seed, std::size_t choice) {
  const auto words = kernels::philox(seed, choice, 1);
  return ((std::uint64_t{words[0]} << 32U) | words[1]) >> 11U;
}

}  // namespace

SamplingParams choice_sampling(const SamplingParams& first, std::size_t choice) {
  SamplingParams out = first;
  if (choice > 0 && first.seed.has_value()) {
    out.seed = seed_of(*first.seed, choice);
  }
  return out;
}

std::vector<Request> choices_of(const Request& request, std::size_t count) {
  std::vector<Request> out(count, request);
  for (std::size_t choice = 1; choice < count; ++choice) {
    out[choice].sampling = choice_sampling(request.sampling, choice);
  }
  return out;
}

std::vector<std::size_t> best_choices(std::span<const Response> answers, std::size_t count) {
  std::vector<std::size_t> order(answers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return answers[a].cumulative_logprob > answers[b].cumulative_logprob;
  });
  order.resize(std::min(count, order.size()));
  return order;
}

}  // namespace nibble
