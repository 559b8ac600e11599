#include "kernels/route/route_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "formats/bf16.h"

namespace nibble::kernels {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct Row {
  const float* logits = nullptr;
  std::int32_t* ids = nullptr;
  float* weights = nullptr;
};

Row row_of(const RouteArgs& args, std::int32_t row) {
  const std::int64_t slot = std::int64_t{row} * args.top_k;
  const float* logits =
      args.logits == nullptr ? nullptr : args.logits + std::int64_t{row} * args.num_experts;
  return {logits, args.ids + slot, args.weights + slot};
}

void write_padding(const RoutePlan& plan, const Row& out) {
  for (std::int32_t slot = 0; slot < plan.args.top_k; ++slot) {
    out.ids[slot] = plan.is_placed ? -1 : slot;
    out.weights[slot] = 0.0F;
  }
}

bool is_sane(const float* logits, std::int32_t count) {
  return std::all_of(logits, logits + count, [](float logit) {
    return logit <= std::numeric_limits<float>::max();  // false for NaN and +Inf
  });
}

// The score up to the normalisation of a softmax, which needs the row's largest logit.
double raw_score(RouteScore score, double logit, double largest) {
  switch (score) {
    case RouteScore::kLogits:
    case RouteScore::kSoftmax: return std::exp(logit - largest);
    case RouteScore::kSigmoid: return 1.0 / (1.0 + std::exp(-logit));
    case RouteScore::kSqrtSoftplus:
      return std::sqrt(std::max(logit, 0.0) + std::log1p(std::exp(-std::abs(logit))));
  }
  return 0.0;
}

// Divisor of a softmax over all experts, and the logit that it subtracts.
struct Softmax {
  double largest = 0.0;
  double sum = 1.0;
};

Softmax softmax_of(const float* logits, std::int32_t count) {
  Softmax all{*std::max_element(logits, logits + count), 0.0};
  for (std::int32_t e = 0; e < count; ++e) {
    all.sum += std::exp(logits[e] - all.largest);
  }
  return all;
}

void compute_keys(const RoutePlan& plan, const float* logits, RouteScratch& scratch) {
  const RouteArgs& args = plan.args;
  const RouteScore score = args.options.score;
  const bool is_raw = plan.logits_are_keys || score == RouteScore::kLogits;
  const Softmax all =
      !is_raw && score == RouteScore::kSoftmax ? softmax_of(logits, args.num_experts) : Softmax{};
  for (std::int32_t e = 0; e < args.num_experts; ++e) {
    const float value =
        is_raw ? logits[e] : static_cast<float>(raw_score(score, logits[e], all.largest) / all.sum);
    scratch.keys[e] = plan.bias.empty() ? value : value + plan.bias[e];
  }
}

float group_score(std::span<const float> keys, GroupScore rule) {
  float best = kLowest;
  float second = kLowest;
  for (const float key : keys) {
    second = std::max(second, std::min(best, key));
    best = std::max(best, key);
  }
  if (rule == GroupScore::kBest || keys.size() == 1) {
    return best;
  }
  return second == kLowest ? kLowest : best + second;
}

void choose_groups(const RouteOptions& options, RouteScratch& scratch) {
  const std::size_t length = scratch.keys.size() / options.num_groups;
  for (std::int32_t group = 0; group < options.num_groups; ++group) {
    scratch.groups[group] = group_score(
        std::span<const float>(scratch.keys).subspan(group * length, length), options.group_score);
  }
  std::iota(scratch.kept.begin(), scratch.kept.end(), 0);
  std::sort(scratch.kept.begin(), scratch.kept.end(), [&](std::int32_t a, std::int32_t b) {
    const float left = scratch.groups[a];
    const float right = scratch.groups[b];
    return left != right ? left > right : a < b;
  });
  std::sort(scratch.kept.begin(), scratch.kept.begin() + options.topk_groups);
}

// False when a weight is not finite.
bool compute_weights(const RoutePlan& plan, const Row& row, RouteScratch& scratch) {
  const RouteOptions& options = plan.args.options;
  const std::int32_t top_k = plan.args.top_k;
  Softmax norm;
  if (options.score == RouteScore::kSoftmax) {
    norm = softmax_of(row.logits, plan.args.num_experts);
  } else if (options.score == RouteScore::kLogits) {
    norm.largest = row.logits[row.ids[0]];
    for (std::int32_t slot = 1; slot < top_k; ++slot) {
      norm.largest = std::max<double>(norm.largest, row.logits[row.ids[slot]]);
    }
  }
  double sum = 0.0;
  for (std::int32_t slot = 0; slot < top_k; ++slot) {
    const double score = raw_score(options.score, row.logits[row.ids[slot]], norm.largest);
    scratch.weights[slot] = score / norm.sum;
    sum += scratch.weights[slot];
  }
  const bool divides = options.renormalise || options.score == RouteScore::kLogits;
  const double epsilon = options.score == RouteScore::kLogits ? 0.0 : options.renormalise_epsilon;
  const double divisor = divides ? sum + epsilon : 1.0;
  bool is_finite = true;
  for (std::int32_t slot = 0; slot < top_k; ++slot) {
    const auto weight = static_cast<float>(scratch.weights[slot] / divisor * options.scaling);
    row.weights[slot] =
        options.round_to_bf16 ? formats::bf16_to_f32(formats::f32_to_bf16(weight)) : weight;
    is_finite = is_finite && std::isfinite(row.weights[slot]);
  }
  return is_finite;
}

void place(const RoutePlan& plan, const Row& row) {
  const ExpertPlacement& placement = plan.args.options.placement;
  std::int32_t next = 0;
  for (std::int32_t slot = 0; slot < plan.args.top_k; ++slot) {
    const std::int32_t logical = row.ids[slot];
    const std::int32_t physical = placement.remap == nullptr ? logical : placement.remap[logical];
    const bool is_local = physical >= placement.local_begin && physical < placement.local_end;
    const std::int32_t id = is_local ? physical - placement.local_begin : -1;
    const float weight = is_local ? row.weights[slot] : 0.0F;
    row.ids[slot] = -1;
    row.weights[slot] = 0.0F;
    const std::int32_t target = placement.compact ? next : slot;
    if (is_local) {
      row.ids[target] = id;
      row.weights[target] = weight;
      ++next;
    }
  }
}

}  // namespace

RouteScratch::RouteScratch(const RoutePlan& plan)
    : keys(plan.args.num_experts),
      order(plan.args.num_experts),
      groups(plan.args.options.num_groups),
      kept(plan.args.options.num_groups),
      weights(plan.args.top_k) {}

std::int32_t list_candidates(const RoutePlan& plan, RouteScratch& scratch) {
  const RouteOptions& options = plan.args.options;
  if (options.topk_groups == options.num_groups) {
    std::iota(scratch.order.begin(), scratch.order.end(), 0);
    return plan.args.num_experts;
  }
  choose_groups(options, scratch);
  const std::int32_t length = plan.args.num_experts / options.num_groups;
  auto* next = scratch.order.data();
  for (std::int32_t i = 0; i < options.topk_groups; ++i) {
    std::iota(next, next + length, scratch.kept[i] * length);
    next += length;
  }
  return options.topk_groups * length;
}

bool route_row(const RoutePlan& plan, std::int32_t row, Choose choose, RouteScratch& scratch) {
  const RouteArgs& args = plan.args;
  const Row out = row_of(args, row);
  if (row >= args.num_valid_tokens) {
    write_padding(plan, out);
    return true;
  }
  if (!is_sane(out.logits, args.num_experts)) {
    write_padding(plan, out);
    return false;
  }
  if (args.given_ids != nullptr) {
    std::copy_n(args.given_ids + std::int64_t{row} * args.top_k, args.top_k, out.ids);
  } else {
    compute_keys(plan, out.logits, scratch);
    choose(scratch, list_candidates(plan, scratch), args.top_k);
    std::copy_n(scratch.order.begin(), args.top_k, out.ids);
    if (args.options.slot_order == SlotOrder::kByExpert) {
      std::sort(out.ids, out.ids + args.top_k);
    }
  }
  if (!compute_weights(plan, out, scratch)) {
    write_padding(plan, out);
    return false;
  }
  if (plan.is_placed) {
    place(plan, out);
  }
  return true;
}

}  // namespace nibble::kernels
