#include "model/random_weights.h"

#include <cmath>
#include <numbers>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "kernels/common/random_bits.h"

namespace nibble::model {
namespace {

// A tensor's distribution: bf16 values, or codes, or scale bytes.
struct Distribution {
  double mean = 0.0;
  double deviation = 1.0;
};

// Root mean square of e2m1's 16 codes taken evenly, and of a scale factor that is 1/2, 1 or 2.
const double kCodeRms = std::sqrt(8.5625);
const double kScaleRms = std::sqrt(1.75);

constexpr std::size_t kQuantiles = kernels::kRandomQuantiles;

std::uint64_t tensor_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return kernels::mix_bits(hash ^ kernels::mix_bits(seed));
}

// Normal quantile at p in (0, 0.5], by bisection on erfc: slow, exact to double, run 2048 times.
double lower_quantile(double p) {
  double low = -8.0;
  double high = 0.0;
  for (int step = 0; step < 60; ++step) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::numbers::sqrt2) < p ? low : high) = middle;
  }
  return high;
}

std::array<double, kQuantiles> normal_quantiles() {
  std::array<double, kQuantiles> out{};
  for (std::size_t i = 0; i < kQuantiles / 2; ++i) {
    out[i] = lower_quantile((static_cast<double>(i) + 0.5) / kQuantiles);
    out[kQuantiles - 1 - i] = -out[i];
  }
  return out;
}

void make_quantiles(const Distribution& of, std::span<formats::Bf16, kQuantiles> out) {
  static const std::array<double, kQuantiles> kNormal = normal_quantiles();
  for (std::size_t i = 0; i < kQuantiles; ++i) {
    out[i] = formats::f32_to_bf16(static_cast<float>(of.mean + of.deviation * kNormal[i]));
  }
}

// Inputs of one output of a linear tensor.
double fan_in(const weights::TensorSpec& spec) {
  const Shape& shape = spec.shape;
  const bool is_blocks = spec.name.ends_with("_blocks");
  const bool is_scales = spec.name.ends_with("_scales");
  return static_cast<double>(is_blocks || is_scales ? shape[2] * 32 : shape.back());
}

Distribution distribution_of(const weights::TensorSpec& spec) {
  const std::string_view name = spec.name;
  if (name.ends_with("norm.weight")) {
    return {1.0, 0.1};
  }
  if (name.ends_with("sinks")) {
    return {0.0, 0.5};
  }
  if (name.ends_with("bias")) {
    return {0.0, 0.02};  // one bias serves every token: a large one would favour a few experts
  }
  if (name == "model.embed_tokens.weight") {
    return {0.0, 1.0};
  }
  const double gain = name == "lm_head.weight" ? 2.0 : 1.0;  // wide logits: greedy texts vary
  return {0.0, gain / std::sqrt(fan_in(spec))};
}

std::uint8_t middle_scale(const Distribution& of) {
  const double exponent = std::log2(of.deviation / (kCodeRms * kScaleRms));
  return static_cast<std::uint8_t>(127 + std::lround(exponent));
}

}  // namespace

kernels::RandomFillArgs RandomRecipe::fill(void* out, std::int64_t offset,
                                           std::int64_t bytes) const {
  NIBBLE_CHECK(offset % 8 == 0, offset);
  return {.out = out,
          .bytes = bytes,
          .first_word = static_cast<std::uint64_t>(offset) / 8,
          .key = key,
          .form = form,
          .quantiles = quantiles.data(),
          .middle_scale = middle_scale};
}

Result<RandomRecipe> random_recipe(std::uint64_t seed, const weights::TensorSpec& spec) {
  RandomRecipe out;
  out.key = tensor_key(seed, spec.name);
  if (spec.name.ends_with("_blocks")) {
    return out;
  }
  if (spec.name.ends_with("_scales")) {
    out.form = kernels::RandomForm::kScales;
    out.middle_scale = middle_scale(distribution_of(spec));
    return out;
  }
  if (spec.dtypes.front() != DType::kBF16) {
    return error(Code::kInternal, "tensor {}: no random {} weights", spec.name,
                 dtype_name(spec.dtypes.front()));
  }
  out.form = kernels::RandomForm::kBf16;
  make_quantiles(distribution_of(spec), out.quantiles);
  return out;
}

Status fill_random(std::uint64_t seed, const weights::TensorSpec& spec, std::int64_t offset,
                   std::span<std::byte> out) {
  NIBBLE_ASSIGN_OR_RETURN(const RandomRecipe recipe, random_recipe(seed, spec));
  return kernels::random_fill_ref(
      recipe.fill(out.data(), offset, static_cast<std::int64_t>(out.size())));
}

}  // namespace nibble::model
