#include "engine/sampler.h"

#include <limits>

namespace nibble::engine {

Sampler::Sampler(std::int32_t vocab)
    : scratch_(static_cast<std::size_t>(vocab)), order_(static_cast<std::size_t>(vocab)) {}

Result<std::int32_t> Sampler::next_token(const Sequence& sequence, std::span<float> logits) {
  const SamplingRules& rules = sequence.request.sampling;
  bias_.clear();
  for (const auto& [id, bias] : rules.logit_bias) {
    bias_.push_back({id, bias});
  }
  if (sequence.num_generated() < sequence.request.min_tokens) {
    for (const std::int32_t id : sequence.request.stop_ids) {
      bias_.push_back({id, -std::numeric_limits<float>::infinity()});
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
