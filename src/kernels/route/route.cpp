#include "kernels/route/route.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "formats/f16.h"
#include "kernels/route/route_rules.h"

namespace nibble::kernels {
namespace {

Status check_sizes(const RouteArgs& args) {
  if (args.num_experts < 1 || args.num_experts > kMaxExperts) {
    return error(Code::kInvalidArgument, "route: want 1..{} experts, got {}", kMaxExperts,
                 args.num_experts);
  }
  if (args.top_k < 1 || args.top_k > args.num_experts) {
    return error(Code::kInvalidArgument, "route: want top_k in 1..{} (the experts), got {}",
                 args.num_experts, args.top_k);
  }
  if (args.num_tokens < 0 || args.num_valid_tokens < 0 || args.num_valid_tokens > args.num_tokens) {
    return error(Code::kInvalidArgument, "route: want 0 <= valid tokens <= tokens, got {} and {}",
                 args.num_valid_tokens, args.num_tokens);
  }
  const bool lacks_logits = args.num_valid_tokens > 0 && args.logits == nullptr;
  const bool lacks_output = args.num_tokens > 0 && (args.ids == nullptr || args.weights == nullptr);
  if (lacks_logits || lacks_output) {
    return error(Code::kInvalidArgument, "route: {} is null for {} tokens",
                 lacks_logits ? "logits" : "ids or weights", args.num_tokens);
  }
  return {};
}

Status check_options(const RouteArgs& args) {
  const RouteOptions& options = args.options;
  if (options.num_groups < 1 || args.num_experts % options.num_groups != 0) {
    return error(Code::kInvalidArgument, "route: {} experts cannot be cut into {} equal groups",
                 args.num_experts, options.num_groups);
  }
  if (options.topk_groups < 1 || options.topk_groups > options.num_groups) {
    return error(Code::kInvalidArgument, "route: want topk_groups in 1..{} (the groups), got {}",
                 options.num_groups, options.topk_groups);
  }
  const std::int32_t reachable = args.num_experts / options.num_groups * options.topk_groups;
  if (args.given_ids == nullptr && reachable < args.top_k) {
    return error(Code::kInvalidArgument,
                 "route: {} of {} groups hold {} experts, fewer than top_k {}", options.topk_groups,
                 options.num_groups, reachable, args.top_k);
  }
  if (!std::isfinite(options.scaling) || !(options.renormalise_epsilon >= 0.0F)) {
    return error(Code::kInvalidArgument,
                 "route: want a finite scaling and an epsilon >= 0, got {} and {}", options.scaling,
                 options.renormalise_epsilon);
  }
  return {};
}

Status check_given_ids(const RouteArgs& args) {
  const std::int64_t count =
      args.given_ids == nullptr ? 0 : std::int64_t{args.num_valid_tokens} * args.top_k;
  for (std::int64_t i = 0; i < count; ++i) {
    if (args.given_ids[i] < 0 || args.given_ids[i] >= args.num_experts) {
      return error(Code::kInvalidArgument,
                   "route: given id {} of token {}, slot {} is outside 0..{}", args.given_ids[i],
                   i / args.top_k, i % args.top_k, args.num_experts - 1);
    }
  }
  return {};
}

Result<std::vector<float>> read_bias(const RouteBias& bias, std::int32_t num_experts) {
  std::vector<float> out;
  if (bias.data == nullptr) {
    return out;
  }
  if (bias.count != num_experts) {
    return error(Code::kInvalidArgument, "route: want a bias of {} values, got {}", num_experts,
                 bias.count);
  }
  out.resize(num_experts);
  for (std::int32_t e = 0; e < num_experts; ++e) {
    switch (bias.dtype) {
      case DType::kF32: out[e] = static_cast<const float*>(bias.data)[e]; break;
      case DType::kBF16:
        out[e] = formats::bf16_to_f32(static_cast<const formats::Bf16*>(bias.data)[e]);
        break;
      case DType::kF16:
        out[e] = formats::f16_to_f32(static_cast<const formats::F16*>(bias.data)[e]);
        break;
      default:
        return error(Code::kInvalidArgument, "route: want a bias of f32, bf16 or f16, got {}",
                     dtype_name(bias.dtype));
    }
    if (!std::isfinite(out[e])) {
      return error(Code::kInvalidArgument, "route: bias[{}] is {}, want a finite value", e, out[e]);
    }
  }
  return out;
}

Status check_remap(const std::int32_t* remap, std::int32_t num_experts, std::int32_t num_physical) {
  std::vector<std::int32_t> owner(num_physical, -1);
  for (std::int32_t e = 0; e < num_experts; ++e) {
    const std::int32_t target = remap[e];
    if (target < -1 || target >= num_physical) {
      return error(Code::kInvalidArgument, "route: remap[{}] is {}, want -1..{}", e, target,
                   num_physical - 1);
    }
    if (target >= 0 && owner[target] >= 0) {
      return error(Code::kInvalidArgument, "route: experts {} and {} are both mapped to {}",
                   owner[target], e, target);
    }
    if (target >= 0) {
      owner[target] = e;
    }
  }
  return {};
}

// Fills in the defaults of `placement`.
Result<bool> resolve_placement(ExpertPlacement& placement, std::int32_t num_experts) {
  if (placement.num_physical == 0) {
    placement.num_physical = num_experts;
  }
  if (placement.local_begin == 0 && placement.local_end == 0) {
    placement.local_end = placement.num_physical;
  }
  const bool has_range = placement.local_begin >= 0 &&
                         placement.local_end > placement.local_begin &&
                         placement.local_end <= placement.num_physical;
  if (placement.num_physical < 0 || placement.num_physical > kMaxExperts || !has_range) {
    return error(Code::kInvalidArgument,
                 "route: want a non-empty local range inside {} physical experts, got {}..{}",
                 placement.num_physical, placement.local_begin, placement.local_end);
  }
  if (placement.remap == nullptr) {
    if (placement.num_physical < num_experts) {
      return error(Code::kInvalidArgument,
                   "route: {} experts do not fit {} physical ones without a remap", num_experts,
                   placement.num_physical);
    }
    return placement.local_begin != 0 || placement.local_end < num_experts;
  }
  NIBBLE_RETURN_IF_ERROR(check_remap(placement.remap, num_experts, placement.num_physical));
  return true;
}

void choose_few(RouteScratch& scratch, std::int32_t count, std::int32_t top_k) {
  const std::vector<float>& keys = scratch.keys;
  std::partial_sort(scratch.order.begin(), scratch.order.begin() + top_k,
                    scratch.order.begin() + count, [&keys](std::int32_t a, std::int32_t b) {
                      return keys[a] != keys[b] ? keys[a] > keys[b] : a < b;
                    });
}

// Faults seen so far; rows may come in any order from several workers.
class FaultCount {
 public:
  void add(std::int32_t row) {
    count_.fetch_add(1, std::memory_order_relaxed);
    std::int32_t first = first_.load(std::memory_order_relaxed);
    while (row < first && !first_.compare_exchange_weak(first, row, std::memory_order_relaxed)) {
    }
  }
  Status report(const RoutePlan& plan) const {
    if (plan.args.num_faults != nullptr) {
      *plan.args.num_faults = count_.load();
    }
    return count_.load() == 0 ? Status() : fault_status(plan, first_.load(), count_.load());
  }

 private:
  std::atomic<std::int32_t> count_{0};
  std::atomic<std::int32_t> first_{INT32_MAX};
};

}  // namespace

Result<RoutePlan> plan_route(const RouteArgs& args) {
  NIBBLE_RETURN_IF_ERROR(check_sizes(args));
  NIBBLE_RETURN_IF_ERROR(check_options(args));
  NIBBLE_RETURN_IF_ERROR(check_given_ids(args));
  RoutePlan plan;
  plan.args = args;
  NIBBLE_ASSIGN_OR_RETURN(plan.bias, read_bias(args.bias, args.num_experts));
  NIBBLE_ASSIGN_OR_RETURN(plan.is_placed,
                          resolve_placement(plan.args.options.placement, args.num_experts));
  const RouteOptions& options = args.options;
  const bool adds_keys =
      options.topk_groups < options.num_groups && options.group_score == GroupScore::kSumOfBestTwo;
  plan.logits_are_keys = plan.bias.empty() && !adds_keys;
  return plan;
}

Status fault_status(const RoutePlan& plan, std::int32_t first_row, std::int32_t num_faults) {
  return error(Code::kInternal,
               "route: want finite weights, but token {} has a NaN or +Inf logit, or nothing but "
               "zero scores ({} such of {} tokens)",
               first_row, num_faults, plan.args.num_valid_tokens);
}

Status route(const RouteArgs& args, const Exec& exec) {
  NIBBLE_ASSIGN_OR_RETURN(const RoutePlan plan, plan_route(args));
  FaultCount faults;
  const auto route_rows = [&](int, Range rows) {
    RouteScratch scratch(plan);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      if (!route_row(plan, static_cast<std::int32_t>(row), &choose_few, scratch)) {
        faults.add(static_cast<std::int32_t>(row));
      }
    }
  };
  if (exec.pool == nullptr) {
    route_rows(0, Range{0, args.num_tokens});
  } else {
    exec.pool->run_split(args.num_tokens, 1, route_rows);
  }
  return faults.report(plan);
}

Result<ExpertPlacement> simulated_expert_parallel(std::int32_t num_experts, std::int32_t ep_size,
                                                  std::int32_t rank) {
  if (ep_size < 1 || num_experts < 1 || num_experts % ep_size != 0) {
    return error(Code::kInvalidArgument, "route: {} experts cannot be cut into {} equal ranks",
                 num_experts, ep_size);
  }
  if (rank < 0 || rank >= ep_size) {
    return error(Code::kInvalidArgument, "route: want a rank in 0..{}, got {}", ep_size - 1, rank);
  }
  const std::int32_t share = num_experts / ep_size;
  ExpertPlacement placement;
  placement.local_begin = rank * share;
  placement.local_end = placement.local_begin + share;
  placement.compact = true;
  return placement;
}

std::int32_t num_local_experts(const ExpertPlacement& placement, std::int32_t num_experts) {
  if (placement.local_begin == 0 && placement.local_end == 0) {
    return placement.num_physical == 0 ? num_experts : placement.num_physical;
  }
  return placement.local_end - placement.local_begin;
}

}  // namespace nibble::kernels
