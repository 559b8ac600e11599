#include "nibble/route.h"

#include "base/error.h"
#include "kernels/route/ragged.h"
#include "kernels/route/route.h"

namespace nibble {
namespace {

kernels::RouteScore inner(RouteScore score) {
  switch (score) {
    case RouteScore::kLogits: return kernels::RouteScore::kLogits;
    case RouteScore::kSoftmax: return kernels::RouteScore::kSoftmax;
    case RouteScore::kSigmoid: return kernels::RouteScore::kSigmoid;
    case RouteScore::kSqrtSoftplus: return kernels::RouteScore::kSqrtSoftplus;
  }
  return kernels::RouteScore::kLogits;
}

DType inner(BiasType type) {
  switch (type) {
    case BiasType::kF32: return DType::kF32;
    case BiasType::kBf16: return DType::kBF16;
    case BiasType::kF16: return DType::kF16;
  }
  return DType::kF32;
}

kernels::ExpertPlacement inner(const ExpertPlacement& placement) {
  return {placement.remap, placement.num_physical, placement.local_begin, placement.local_end,
          placement.compact};
}

kernels::RouteOptions inner(const RouteOptions& options) {
  kernels::RouteOptions out;
  out.score = inner(options.score);
  out.renormalise = options.renormalise;
  out.renormalise_epsilon = options.renormalise_epsilon;
  out.scaling = options.scaling;
  out.num_groups = options.num_groups;
  out.topk_groups = options.topk_groups;
  out.group_score = options.group_score == GroupScore::kBest ? kernels::GroupScore::kBest
                                                             : kernels::GroupScore::kSumOfBestTwo;
  out.slot_order = options.slot_order == SlotOrder::kByExpert ? kernels::SlotOrder::kByExpert
                                                              : kernels::SlotOrder::kByKey;
  out.round_to_bf16 = options.round_to_bf16;
  out.placement = inner(options.placement);
  return out;
}

Status check(const RaggedCall& call) {
  if (call.num_experts < 1 || call.num_experts > kernels::kMaxExperts || call.num_tokens < 0 ||
      call.top_k < 1 || call.top_k > kernels::kMaxExperts) {
    return error(Code::kInvalidArgument,
                 "ragged: want 1..{} experts, top_k in the same range and tokens >= 0, got {}, {} "
                 "and {}",
                 kernels::kMaxExperts, call.num_experts, call.top_k, call.num_tokens);
  }
  return {};
}

}  // namespace

Status route(const RouteCall& call) {
  kernels::RouteArgs args;
  args.logits = call.logits;
  args.given_ids = call.given_ids;
  args.bias = {call.bias, inner(call.bias_type), call.num_experts};
  args.ids = call.ids;
  args.weights = call.weights;
  args.num_tokens = call.num_tokens;
  args.num_valid_tokens = call.num_valid_tokens == -1 ? call.num_tokens : call.num_valid_tokens;
  args.num_experts = call.num_experts;
  args.top_k = call.top_k;
  args.options = inner(call.options);
  return kernels::route(args, Exec{});
}

Result<ExpertPlacement> simulated_expert_parallel(std::int32_t num_experts, std::int32_t ep_size,
                                                  std::int32_t rank) {
  NIBBLE_ASSIGN_OR_RETURN(const kernels::ExpertPlacement placement,
                          kernels::simulated_expert_parallel(num_experts, ep_size, rank));
  return ExpertPlacement{placement.remap, placement.num_physical, placement.local_begin,
                         placement.local_end, placement.compact};
}

Result<RaggedRows> build_ragged(const RaggedCall& call) {
  NIBBLE_RETURN_IF_ERROR(check(call));
  const std::int64_t rows = std::int64_t{call.num_tokens} * call.top_k;
  const std::size_t sizes = call.block_rows.size();
  RaggedRows out;
  out.num_places = kernels::max_blocks(rows, call.num_experts);
  out.slice_sizes.resize(call.num_experts);
  out.slice_offs.resize(call.num_experts + 1);
  out.gather.resize(rows);
  out.scatter.resize(rows);
  out.gates.resize(call.weights == nullptr ? 0 : rows);
  out.block_rows = call.block_rows;
  out.block_offs.resize(sizes * (call.num_experts + 1));
  out.schedule.resize(sizes * out.num_places);
  const kernels::RaggedArgs args{
      .ids = call.ids,
      .weights = call.weights,
      .num_tokens = call.num_tokens,
      .num_valid_tokens = call.num_valid_tokens == -1 ? call.num_tokens : call.num_valid_tokens,
      .top_k = call.top_k,
      .num_experts = call.num_experts,
      .block_rows = out.block_rows};
  NIBBLE_RETURN_IF_ERROR(kernels::build_ragged(
      args, {out.slice_sizes.data(), out.slice_offs.data(), out.gather.data(), out.scatter.data(),
             out.gates.data(), out.block_offs.data(), out.schedule.data()}));
  return out;
}

}  // namespace nibble
