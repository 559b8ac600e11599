#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace nibble::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr std::size_t kBits = 32;

// A NaN stays, so that a broken row fails whatever is allowed of it.
float forbidden(float logit) {
  float result = kImpossible;
  if (std::isnan(logit)) {
    result = logit;
  }
  return result;
}

// Words are mostly all ones or all zeros: the former cost nothing, the latter are one loop without
// branches, and in between only the zeros are looked at.
void forbid(std::span<const std::uint32_t> allowed, std::span<float> logits) {
  for (std::size_t word = 0; word < allowed.size(); ++word) {
    const std::size_t first = word * kBits;
    const std::span<float> row = logits.subspan(first, std::min(kBits, logits.size() - first));
    if (allowed[word] == 0) {
      std::transform(row.begin(), row.end(), row.begin(), forbidden);
      continue;
    }
    for (std::uint32_t zeros = ~allowed[word]; zeros != 0; zeros &= zeros - 1) {
      const auto bit = static_cast<std::size_t>(std::countr_zero(zeros));
      if (bit < row.size()) {
        row[bit] = forbidden(row[bit]);
      }
    }
  }
}

bool has_any(std::span<const std::uint32_t> words) {
  return std::any_of(words.begin(), words.end(), [](std::uint32_t word) { return word != 0; });
}

}  // namespace

Sampler::Sampler(std::int32_t vocab)
    : scratch_(static_cast<std::size_t>(vocab)),
      order_(static_cast<std::size_t>(vocab)),
      mask_((static_cast<std::size_t>(vocab) + kBits - 1) / kBits) {}

Result<std::int32_t> Sampler::next_token(const Sequence& sequence, std::span<float> logits) {
  TokenMask* mask = sequence.request.mask.get();
  bool holds_stops = sequence.num_generated() < sequence.request.min_tokens;
  if (mask == nullptr) {
    return draw(sequence, logits, holds_stops);
  }
  const Clock::time_point begin = Clock::now();
  const Result<bool> has_others = apply_mask(sequence, logits);
  mask_cost_.time += Clock::now() - begin;
  ++mask_cost_.num_tokens;
  if (!has_others) {
    return has_others.error();
  }
  holds_stops = holds_stops && *has_others;  // a mask that wants the end gets it
  NIBBLE_ASSIGN_OR_RETURN(const std::int32_t token, draw(sequence, logits, holds_stops));
  const Clock::time_point drawn = Clock::now();
  const Status accepted = mask->accept(token);
  mask_cost_.time += Clock::now() - drawn;
  NIBBLE_RETURN_IF_ERROR(accepted);
  return token;
}

Result<bool> Sampler::apply_mask(const Sequence& sequence, std::span<float> logits) {
  if (!sequence.request.mask->mask(mask_)) {
    return true;
  }
  const std::size_t tail = logits.size() % kBits;
  if (tail != 0) {
    mask_.back() &= (std::uint32_t{1} << tail) - 1;
  }
  if (!has_any(mask_)) {
    return error(Code::kInternal, "token mask: none of {} ids may follow {} generated tokens",
                 logits.size(), sequence.num_generated());
  }
  forbid(mask_, logits);
  for (const std::int32_t id : sequence.request.stop_ids) {
    mask_[static_cast<std::size_t>(id) / kBits] &=
        ~(std::uint32_t{1} << (static_cast<std::size_t>(id) % kBits));
  }
  return has_any(mask_);
}

Result<std::int32_t> Sampler::draw(const Sequence& sequence, std::span<float> logits,
                                   bool holds_stops) {
  const SamplingRules& rules = sequence.request.sampling;
  bias_.clear();
  for (const auto& [id, bias] : rules.logit_bias) {
    bias_.push_back({id, bias});
  }
  if (holds_stops) {
    for (const std::int32_t id : sequence.request.stop_ids) {
      bias_.push_back({id, kImpossible});
    }
  }
  return kernels::sample({.logits = logits,
                          .counts = sequence.counts,
                          .logit_bias = bias_,
                          .temperature = rules.temperature,
                          .top_k = rules.top_k,
                          .top_p = rules.top_p,
                          .min_p = rules.min_p,
                          .repetition_penalty = rules.repetition_penalty,
                          .presence_penalty = rules.presence_penalty,
                          .frequency_penalty = rules.frequency_penalty,
                          .seed = rules.seed,
                          .counter = static_cast<std::uint64_t>(sequence.num_generated()),
                          .scratch = scratch_,
                          .order = order_});
}

}  // namespace nibble::engine
