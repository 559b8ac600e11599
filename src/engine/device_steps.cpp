#include "engine/device_steps.h"

#include <algorithm>
#include <limits>

namespace nibble::engine {
namespace {

std::size_t num_entries(const model::SampleBatch& batch) {
  return batch.counts.size() + batch.logit_bias.size();
}

// For logit rows that give no token, or whose token is chosen on the host: the cheapest choice.
constexpr kernels::SampleRow kIgnored{.temperature = 0.0F};

}  // namespace

TokenSource token_source(const Sequence& sequence, std::size_t num_entries) {
  const TokenRequest& request = sequence.request;
  const std::size_t wanted =
      sequence.counts.size() + request.sampling.logit_bias.size() + request.stop_ids.size();
  if (request.mask != nullptr || request.top_logprobs >= 0 || sequence.wants_prompt_logits() ||
      num_entries + wanted > model::kMostSampleEntries) {
    return TokenSource::kHost;
  }
  return request.sampling.has_penalties() ? TokenSource::kDeviceWithCounts : TokenSource::kDevice;
}

void add_sample_row(const Sequence& sequence, model::SampleBatch& batch) {
  const SamplingRules& rules = sequence.request.sampling;
  kernels::SampleRow row{.seed = rules.seed,
                         .counter = static_cast<std::uint64_t>(sequence.num_generated()),
                         .temperature = rules.temperature,
                         .top_p = rules.top_p,
                         .min_p = rules.min_p,
                         .repetition_penalty = rules.repetition_penalty,
                         .presence_penalty = rules.presence_penalty,
                         .frequency_penalty = rules.frequency_penalty,
                         .top_k = rules.top_k,
                         .first_count = static_cast<std::int32_t>(batch.counts.size()),
                         .num_counts = static_cast<std::int32_t>(sequence.counts.size()),
                         .first_bias = static_cast<std::int32_t>(batch.logit_bias.size())};
  batch.counts.insert(batch.counts.end(), sequence.counts.begin(), sequence.counts.end());
  for (const auto& [id, bias] : rules.logit_bias) {
    batch.logit_bias.push_back({id, bias});
  }
  if (sequence.num_generated() < sequence.request.min_tokens) {
    for (const std::int32_t id : sequence.request.stop_ids) {
      batch.logit_bias.push_back({id, -std::numeric_limits<float>::infinity()});
    }
  }
  row.num_bias = static_cast<std::int32_t>(batch.logit_bias.size()) - row.first_bias;
  batch.rows.push_back(row);
}

void add_started(const Sequence& sequence, StartedStep& step, model::SampleBatch& batch) {
  StartedRow row{.sequence = sequence.id,
                 .first_logit_row = static_cast<std::int32_t>(batch.rows.size()),
                 .is_complete = sequence.num_remaining() == 0,
                 .index = sequence.num_ids()};
  if (sequence.wants_prompt_logits()) {
    const std::int32_t until = std::min(sequence.num_computed, sequence.num_prompt());
    row.num_scored = std::max(0, until - sequence.num_scored);
  }
  const TokenSource source = token_source(sequence, num_entries(batch));
  row.is_on_host = source == TokenSource::kHost;
  if (row.is_complete && !row.is_on_host) {
    add_sample_row(sequence, batch);
  } else {
    batch.rows.insert(batch.rows.end(), static_cast<std::size_t>(row.num_logit_rows()), kIgnored);
  }
  const bool needs_this_step = row.num_scored > 0 || row.is_complete;
  step.may_run_ahead = step.may_run_ahead && (!needs_this_step || source == TokenSource::kDevice);
  step.rows.push_back(row);
}

}  // namespace nibble::engine
