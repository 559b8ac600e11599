#include "unit/kernels/route_cases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace nibble::kernels {
namespace {

enum Stream : std::uint64_t { kConfig, kLogitDraws, kBiasDraws, kIdDraws, kCoefficients, kRemap };

constexpr std::int32_t kExperts[] = {1,  2,   3,   4,   5,   8,   16,  31,   32,   33,
                                     64, 127, 128, 255, 256, 257, 384, 1023, 1024, 1025};
constexpr std::int32_t kTopK[] = {1, 2, 4, 6, 8, 1'000'000};
constexpr std::int32_t kTokens[] = {0, 1, 2, 3, 4, 5, 8, 13, 40};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Nearest binary16 of a value that has one exactly and is normal or zero.
std::uint16_t exact_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 31U << 15U;
  const std::uint32_t exponent = (bits >> 23U) & 0xFFU;
  const std::uint32_t rest = ((exponent - 112U) << 10U) | ((bits >> 13U) & 0x3FFU);
  return static_cast<std::uint16_t>(sign | (value == 0.0F ? 0U : rest));
}

float bias_value(std::uint64_t kind, std::uint64_t draw) {
  switch (kind) {
    case 1: return (static_cast<float>(draw % 257) - 128.0F) / 256.0F;
    case 2: return 9.0F + static_cast<float>(draw % 5) * 0.25F;
    default: return static_cast<float>(draw % 9) - 4.0F;
  }
}

float logit_value(std::uint64_t kind, std::uint64_t draw) {
  const float unit = static_cast<float>(static_cast<std::int64_t>(draw >> 40U) - (1 << 23));
  switch (kind) {
    case 1: return static_cast<float>(draw % 5) - 2.0F;
    case 2: return -40.0F;
    case 3: return -std::abs(unit) * 0x1p-13F;
    case 4: return draw % 2 == 0 ? -kInfinity : unit * 0x1p-20F;
    case 8: return 1.0F + static_cast<float>(draw % 3) * 0x1p-23F;
    case 10: return unit * 0x1p104F;
    default: return unit * 0x1p-20F;
  }
}

}  // namespace

std::uint64_t mix(std::uint64_t stream, std::uint64_t which, std::uint64_t index) {
  std::uint64_t z = (((stream << 56U) | (which << 32U)) + index + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

RouteCase::RouteCase(std::uint32_t case_number) : number(case_number) {
  std::vector<std::uint64_t> draws(32);
  for (std::size_t i = 0; i < draws.size(); ++i) {
    draws[i] = mix(kConfig, number, i);
  }
  draw_sizes(draws);
  draw_placement(draws);
  draw_logits(draws[16] % 11);
  draw_bias(draws[14] % 4, draws[15] % 3);
  const auto slots = static_cast<std::size_t>(args.num_tokens) * args.top_k;
  given_ids.resize(slots);
  for (std::size_t i = 0; i < slots; ++i) {
    given_ids[i] = static_cast<std::int32_t>(mix(kIdDraws, number, i) %
                                             static_cast<std::uint64_t>(args.num_experts));
  }
  args.given_ids = draws[17] % 8 == 0 && slots > 0 ? given_ids.data() : nullptr;
  ids.assign(slots, -7);
  weights.assign(slots, std::numeric_limits<float>::quiet_NaN());
  args.ids = ids.data();
  args.weights = weights.data();
  args.num_faults = &num_faults;
}

void RouteCase::draw_sizes(const std::vector<std::uint64_t>& draws) {
  args.num_experts = kExperts[draws[0] % std::size(kExperts)];
  args.top_k = kTopK[draws[1] % std::size(kTopK)];
  if (args.top_k > args.num_experts) {
    args.top_k = args.num_experts <= 33 ? args.num_experts : 4;
  }
  args.num_tokens = kTokens[draws[2] % std::size(kTokens)];
  args.num_valid_tokens =
      draws[3] % 4 == 0
          ? static_cast<std::int32_t>(draws[4] % static_cast<std::uint64_t>(args.num_tokens + 1))
          : args.num_tokens;
  RouteOptions& options = args.options;
  options.score = static_cast<RouteScore>(draws[5] % 4);
  options.renormalise = draws[6] % 2 == 1;
  options.renormalise_epsilon = draws[7] % 2 == 1 ? 1e-20F : 0.0F;
  constexpr float kScalings[] = {1.0F, 1.5F, 2.5F};
  options.scaling = kScalings[draws[8] % 3];
  constexpr std::int32_t kGroups[] = {1, 1, 2, 4, 8};
  const std::int32_t groups = kGroups[draws[9] % 5];
  options.num_groups = args.num_experts % groups == 0 ? groups : 1;
  options.topk_groups =
      1 + static_cast<std::int32_t>(draws[10] % static_cast<std::uint64_t>(options.num_groups));
  while (args.num_experts / options.num_groups * options.topk_groups < args.top_k) {
    ++options.topk_groups;
  }
  options.group_score = draws[11] % 2 == 1 ? GroupScore::kBest : GroupScore::kSumOfBestTwo;
  options.slot_order = draws[12] % 2 == 1 ? SlotOrder::kByExpert : SlotOrder::kByKey;
  options.round_to_bf16 = draws[13] % 4 == 0;
}

void RouteCase::draw_placement(const std::vector<std::uint64_t>& draws) {
  ExpertPlacement& placement = args.options.placement;
  const std::uint64_t kind = draws[18] % 8;
  auto physical = static_cast<std::uint64_t>(args.num_experts);
  if (kind == 4 || kind == 7) {
    physical += 3;
    remap.resize(args.num_experts);
    for (std::uint64_t e = 0; e < remap.size(); ++e) {
      remap[e] = mix(kRemap, number, e) % 16 == 0
                     ? -1
                     : static_cast<std::int32_t>((e + draws[19] % 97) % physical);
    }
    placement.remap = remap.data();
    placement.num_physical = static_cast<std::int32_t>(physical);
  }
  if (kind == 5 || kind == 7) {
    const std::uint64_t begin = draws[20] % physical;
    placement.local_begin = static_cast<std::int32_t>(begin);
    placement.local_end = static_cast<std::int32_t>(begin + 1 + draws[21] % (physical - begin));
    placement.compact = draws[22] % 2 == 1;
  }
  if (kind == 6) {
    constexpr std::int32_t kRanks[] = {2, 4, 8};
    std::int32_t ranks = kRanks[draws[23] % 3];
    ranks = args.num_experts % ranks == 0 ? ranks : 1;
    const auto rank = static_cast<std::int32_t>(draws[24] % static_cast<std::uint64_t>(ranks));
    placement = simulated_expert_parallel(args.num_experts, ranks, rank).value();
  }
}

void RouteCase::draw_logits(std::uint64_t kind) {
  const std::int32_t experts = args.num_experts;
  logits.resize(static_cast<std::size_t>(args.num_tokens) * experts);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = logit_value(kind, mix(kLogitDraws, number, i));
  }
  const auto special = static_cast<std::int32_t>(number % static_cast<std::uint32_t>(experts));
  for (std::int32_t t = 0; t < args.num_tokens; ++t) {
    float* row = logits.data() + std::int64_t{t} * experts;
    if (kind == 5 && t % 3 == 0) {
      std::fill_n(row, experts, -kInfinity);
    } else if (kind == 6 && t == 1) {
      row[special] = std::numeric_limits<float>::quiet_NaN();
    } else if (kind == 7) {
      row[special] += 20.0F;
    } else if (kind == 9 && t == 0) {
      row[special] = kInfinity;
    }
  }
  args.logits = logits.data();
}

void RouteCase::draw_bias(std::uint64_t kind, std::uint64_t dtype) {
  bias_bytes.resize(args.num_experts);
  for (std::int32_t e = 0; e < args.num_experts; ++e) {
    const float value = bias_value(kind, mix(kBiasDraws, number, static_cast<std::uint64_t>(e)));
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (dtype == 0) {
      bias_bytes[e] = bits;
    } else {
      const auto half = dtype == 1 ? static_cast<std::uint16_t>(bits >> 16U) : exact_f16(value);
      reinterpret_cast<std::uint16_t*>(bias_bytes.data())[e] = half;
    }
  }
  constexpr DType kDtypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  args.bias = {kind == 0 ? nullptr : bias_bytes.data(), kDtypes[dtype], args.num_experts};
}

RaggedBuffers::RaggedBuffers(std::int64_t rows, std::int32_t num_experts,
                             std::size_t num_block_sizes)
    : slice_sizes(num_experts, -7),
      slice_offs(num_experts + 1, -7),
      gather(rows, -7),
      scatter(rows, -7),
      block_offs(num_block_sizes * (num_experts + 1), -7),
      schedule(num_block_sizes * max_blocks(rows, num_experts), -7),
      gates(rows, -7.0F) {}

RaggedOut RaggedBuffers::out() {
  return {slice_sizes.data(), slice_offs.data(), gather.data(),  scatter.data(),
          gates.data(),       block_offs.data(), schedule.data()};
}

std::uint32_t hash_of(std::span<const std::span<const std::int32_t>> arrays) {
  std::uint64_t total = 0;
  for (std::size_t tag = 0; tag < arrays.size(); ++tag) {
    for (std::uint64_t i = 0; i < arrays[tag].size(); ++i) {
      const auto value = static_cast<std::uint64_t>(static_cast<std::uint32_t>(arrays[tag][i]));
      total += mix(64 + tag, 0, (value << 24U) ^ i);
    }
  }
  return static_cast<std::uint32_t>(total >> 32U);
}

Projection project(std::span<const float> first, std::span<const float> second) {
  Projection sum;
  for (std::size_t i = 0; i < first.size() + second.size(); ++i) {
    const double value = i < first.size() ? first[i] : second[i - first.size()];
    const double factor = static_cast<double>(mix(kCoefficients, 0, i) >> 40U) * 0x1p-24;
    sum.value += factor * value;
    sum.magnitude += factor * std::abs(value);
  }
  return sum;
}

}  // namespace nibble::kernels
