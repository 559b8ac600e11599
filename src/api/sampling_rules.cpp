#include "api/sampling_rules.h"

#include <random>

#include "base/error.h"

namespace nibble {
namespace {

struct Limits {
  double low = 0.0;
  double high = 0.0;
};

// NaN is outside every range.
Status check(const char* field, double value, Limits limits) {
  if (!(value >= limits.low && value <= limits.high)) {
    return error(Code::kInvalidArgument, "{}: want {} to {}, found {}", field, limits.low,
                 limits.high, value);
  }
  return {};
}

// 53 bits: every JSON reader keeps it exactly.
std::uint64_t random_seed() {
  std::random_device device;
  return ((std::uint64_t{device()} << 32U) | device()) >> 11U;
}

Status check_rules(const engine::SamplingRules& rules) {
  NIBBLE_RETURN_IF_ERROR(check("temperature", rules.temperature, {0.0, 100.0}));
  NIBBLE_RETURN_IF_ERROR(check("top_p", rules.top_p, {1e-6, 1.0}));
  NIBBLE_RETURN_IF_ERROR(check("top_k", rules.top_k, {0.0, 1 << 24}));
  NIBBLE_RETURN_IF_ERROR(check("min_p", rules.min_p, {0.0, 1.0}));
  NIBBLE_RETURN_IF_ERROR(check("repetition_penalty", rules.repetition_penalty, {1e-3, 1e3}));
  NIBBLE_RETURN_IF_ERROR(check("presence_penalty", rules.presence_penalty, {-2.0, 2.0}));
  NIBBLE_RETURN_IF_ERROR(check("frequency_penalty", rules.frequency_penalty, {-2.0, 2.0}));
  for (const auto& [id, bias] : rules.logit_bias) {
    NIBBLE_RETURN_IF_ERROR(check("logit_bias", bias, {-100.0, 100.0}));
  }
  return {};
}

}  // namespace

Result<engine::SamplingRules> sampling_rules(const SamplingParams& params,
                                             const model::GenerationDefaults& defaults) {
  engine::SamplingRules rules{
      .temperature = params.temperature.value_or(defaults.do_sample ? defaults.temperature : 0.0F),
      .top_p = params.top_p.value_or(defaults.top_p),
      .top_k = params.top_k.value_or(defaults.top_k),
      .min_p = params.min_p.value_or(defaults.min_p),
      .repetition_penalty = params.repetition_penalty.value_or(defaults.repetition_penalty),
      .presence_penalty = params.presence_penalty,
      .frequency_penalty = params.frequency_penalty,
      .logit_bias = params.logit_bias,
      .seed = params.seed.has_value() ? *params.seed : random_seed()};
  NIBBLE_RETURN_IF_ERROR(check_rules(rules));
  return rules;
}

}  // namespace nibble
