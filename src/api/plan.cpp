#include "nibble/plan.h"

#include "api/kernel_table.h"
#include "base/error.h"
#include "kernels/moe/moe_plan.h"

namespace nibble {
namespace {

Result<kernels::DeviceLimits> limits_of(const PlanDevice& device) {
  NIBBLE_ASSIGN_OR_RETURN(kernels::DeviceLimits limits, kernels::device_limits(device.arch));
  if (device.num_sms < 0 || device.shared_bytes < 0) {
    return error(Code::kInvalidArgument, "plan: want num_sms and shared_bytes >= 0, got {} and {}",
                 device.num_sms, device.shared_bytes);
  }
  limits.num_sms = device.num_sms > 0 ? device.num_sms : limits.num_sms;
  limits.shared_bytes = device.shared_bytes > 0 ? device.shared_bytes : limits.shared_bytes;
  limits.has_tma = limits.has_tma && device.has_tma;
  return limits;
}

}  // namespace

Result<ProductPlan> plan_product(const ProductProblem& problem, const PlanDevice& device) {
  NIBBLE_ASSIGN_OR_RETURN(const kernels::DeviceLimits limits, limits_of(device));
  kernels::ProductProblem inner;
  inner.tokens = problem.tokens;
  inner.num_experts = problem.num_experts;
  inner.top_k = problem.top_k;
  inner.n = problem.n;
  inner.k = problem.k;
  inner.w_dtype = problem.has_mxfp4_weights ? DType::kE2M1 : DType::kBF16;
  inner.accumulates = problem.accumulates;
  inner.is_deterministic = problem.is_deterministic;
  NIBBLE_ASSIGN_OR_RETURN(kernels::LaunchPlan plan, kernels::plan_product(inner, limits));
  judge_plan(kernel_rows(), inner, limits.arch, plan);
  ProductPlan out;
  out.arch = kernels::arch_name(limits.arch);
  out.form = kernels::form_name(plan.form);
  out.layout = kernels::layout_name(plan.layout);
  out.block_m = plan.tile_m;
  out.block_n = plan.tile_n;
  out.block_k = plan.tile_k;
  out.num_warps = plan.num_warps;
  out.num_stages = plan.num_stages;
  out.split_k = plan.split_k;
  out.epilogue_subtile = plan.epilogue_subtile;
  out.is_persistent = plan.is_persistent;
  out.padded_n = plan.padded_n;
  out.padded_k = plan.padded_k;
  out.shared_bytes = plan.shared_bytes;
  out.grid = plan.grid;
  out.verified = plan.verified;
  out.warning = limits.warning;
  for (const kernels::Decision& decision : plan.decisions) {
    out.rules.push_back({decision.field, decision.rule});
  }
  return out;
}

}  // namespace nibble
