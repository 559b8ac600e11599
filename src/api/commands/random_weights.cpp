#include "api/commands/random_weights.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "formats/bf16.h"

namespace nibble::commands {
namespace {

// A tensor's distribution: bf16 values, or codes, or scale bytes.
struct Recipe {
  double mean = 0.0;
  double deviation = 1.0;
};

// Root mean square of e2m1's 16 codes taken evenly, and of a scale factor that is 1/2, 1 or 2.
const double kCodeRms = std::sqrt(8.5625);
const double kScaleRms = std::sqrt(1.75);

constexpr int kQuantileBits = 12;
constexpr std::size_t kQuantiles = std::size_t{1} << kQuantileBits;
using Table = std::array<formats::Bf16, kQuantiles>;

// splitmix64's output function over a counter.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}
constexpr std::uint64_t draw(std::uint64_t key, std::uint64_t counter) {
  return mix(key + counter * 0x9E3779B97F4A7C15ULL);
}

std::uint64_t tensor_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return mix(hash ^ mix(seed));
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

std::array<double, kQuantiles> make_quantiles() {
  std::array<double, kQuantiles> out{};
  for (std::size_t i = 0; i < kQuantiles / 2; ++i) {
    out[i] = lower_quantile((static_cast<double>(i) + 0.5) / kQuantiles);
    out[kQuantiles - 1 - i] = -out[i];
  }
  return out;
}

Table make_table(const Recipe& recipe) {
  static const std::array<double, kQuantiles> kNormal = make_quantiles();
  Table table;
  for (std::size_t i = 0; i < kQuantiles; ++i) {
    table[i] =
        formats::f32_to_bf16(static_cast<float>(recipe.mean + recipe.deviation * kNormal[i]));
  }
  return table;
}

// Inputs of one output of a linear tensor.
double fan_in(const weights::TensorSpec& spec) {
  const Shape& shape = spec.shape;
  const bool is_blocks = spec.name.ends_with("_blocks");
  const bool is_scales = spec.name.ends_with("_scales");
  return static_cast<double>(is_blocks || is_scales ? shape[2] * 32 : shape.back());
}

Recipe recipe_for(const weights::TensorSpec& spec) {
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

void fill_words(std::uint64_t key, std::uint64_t first, std::span<std::byte> out) {
  std::uint64_t counter = first;
  for (std::size_t i = 0; i < out.size(); i += 8) {
    const std::uint64_t word = draw(key, counter++);
    std::memcpy(out.data() + i, &word, std::min<std::size_t>(8, out.size() - i));
  }
}

void fill_bf16(std::uint64_t key, std::uint64_t first, const Recipe& recipe,
               std::span<std::byte> out) {
  const Table table = make_table(recipe);
  std::uint64_t counter = first;
  for (std::size_t i = 0; i < out.size(); i += 8) {
    const std::uint64_t word = draw(key, counter++);
    std::array<formats::Bf16, 4> four;
    for (std::size_t lane = 0; lane < 4; ++lane) {
      four[lane] = table[word >> (16 * lane) & (kQuantiles - 1)];
    }
    std::memcpy(out.data() + i, four.data(), std::min<std::size_t>(8, out.size() - i));
  }
}

void fill_scales(std::uint64_t key, std::uint64_t first, const Recipe& recipe,
                 std::span<std::byte> out) {
  const double exponent = std::log2(recipe.deviation / (kCodeRms * kScaleRms));
  const auto middle = static_cast<std::uint64_t>(127 + std::lround(exponent));
  std::uint64_t counter = first;
  for (std::size_t i = 0; i < out.size(); i += 8) {
    const std::uint64_t word = draw(key, counter++);
    std::array<std::uint8_t, 8> eight{};
    for (std::size_t lane = 0; lane < 8; ++lane) {
      const std::uint64_t third = (word >> (8 * lane) & 0xFFU) * 3 >> 8U;  // 0, 1 or 2
      eight[lane] = static_cast<std::uint8_t>(middle + third - 1);
    }
    std::memcpy(out.data() + i, eight.data(), std::min<std::size_t>(8, out.size() - i));
  }
}

}  // namespace

Status fill_random(std::uint64_t seed, const weights::TensorSpec& spec, std::int64_t offset,
                   std::span<std::byte> out) {
  NIBBLE_CHECK(offset % 8 == 0, offset);
  const std::uint64_t key = tensor_key(seed, spec.name);
  const auto first = static_cast<std::uint64_t>(offset) / 8;
  if (spec.name.ends_with("_blocks")) {
    fill_words(key, first, out);
  } else if (spec.name.ends_with("_scales")) {
    fill_scales(key, first, recipe_for(spec), out);
  } else if (spec.dtypes.front() == DType::kBF16) {
    fill_bf16(key, first, recipe_for(spec), out);
  } else {
    return error(Code::kInternal, "tensor {}: no random {} weights", spec.name,
                 dtype_name(spec.dtypes.front()));
  }
  return {};
}

}  // namespace nibble::commands
