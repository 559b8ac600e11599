#include "api/commands/plan.h"

#include <algorithm>

#include "api/commands/presets.h"
#include "api/kernel_table.h"
#include "base/error.h"
#include "kernels/convert/expert_shard.h"
#include "kernels/moe/moe_plan.h"
#include "model/config.h"
#include "model/tensor_parallel.h"

namespace nibble::commands {
namespace {

using kernels::DeviceLimits;
using kernels::LaunchPlan;
using kernels::ProductProblem;
using model::ModelConfig;

struct Op {
  const char* name;
  ProductProblem problem;  // tokens are filled in later
};

// The products of a layer and the head, as rank 0 of `ranks` sees them; `width` is its part of the
// expert width.
std::vector<Op> products(const ModelConfig& config, std::int32_t ranks, std::int64_t width) {
  const std::int64_t heads = config.num_heads / ranks;
  const std::int64_t kv_heads = config.num_kv_heads / ranks;
  const bool has_fp4_experts = config.has_mxfp4_experts || config.has_nvfp4_experts;
  const DType expert_dtype = has_fp4_experts ? DType::kE2M1 : DType::kBF16;
  // With several ranks the residual is added after the sum over them.
  const bool adds = ranks == 1;
  const auto dense = [](std::int64_t n, std::int64_t k) {
    ProductProblem problem;
    problem.n = n;
    problem.k = k;
    problem.w_dtype = DType::kBF16;
    return problem;
  };
  const auto expert = [&](std::int64_t n, std::int64_t k) {
    ProductProblem problem = dense(n, k);
    problem.num_experts = config.num_experts;
    problem.top_k = config.top_k;
    problem.w_dtype = expert_dtype;
    return problem;
  };
  std::vector<Op> ops = {
      {"attn_qkv", dense((heads + 2 * kv_heads) * config.head_dim, config.hidden)},
      {"attn_out", dense(config.hidden, heads * config.head_dim)},
      {"router", dense(config.num_experts, config.hidden)},
      {"moe_gate_up", expert(2 * width, config.hidden)},
      {"moe_down", expert(config.hidden, width)},
      {"lm_head", dense((config.vocab + ranks - 1) / ranks, config.hidden)},
  };
  ops[1].problem.accumulates = adds;
  ops[2].problem.out_dtype = DType::kF32;
  ops[5].problem.out_dtype = DType::kF32;
  return ops;
}

PlanRow row_of(const Op& op, const ProductProblem& problem, const LaunchPlan& plan) {
  PlanRow row;
  row.op = op.name;
  row.tokens = problem.tokens;
  row.n = problem.n;
  row.k = problem.k;
  row.form = kernels::form_name(plan.form);
  row.block_m = plan.tile_m;
  row.block_n = plan.tile_n;
  row.block_k = plan.tile_k;
  row.num_warps = plan.num_warps;
  row.num_stages = plan.num_stages;
  row.split_k = plan.split_k;
  row.is_persistent = plan.is_persistent;
  row.layout = kernels::layout_name(plan.layout);
  row.padded_n = plan.padded_n;
  row.padded_k = plan.padded_k;
  row.shared_bytes = plan.shared_bytes;
  row.grid = plan.grid;
  row.verified = plan.verified;
  for (const kernels::Decision& decision : plan.decisions) {
    row.rules.emplace_back(decision.field, decision.rule);
    row.reason += (row.reason.empty() ? "" : "; ") + decision.field + ": " + decision.rule;
  }
  return row;
}

Result<ModelConfig> config_of(const std::string& name) {
  if (const std::optional<Preset> preset = find_preset(name); preset.has_value()) {
    return preset->config;
  }
  return model::load_config(name);
}

// The rules for GPUs are about MXFP4's blocks of 32. Without NVFP4's own a processor alone is
// planned for, and another architecture refused.
Status restrict_nvfp4(const PlanOptions& given, std::vector<std::string>& archs,
                      PlanReport& report) {
  const std::string known = "plans for GPUs know experts of mxfp4 and bf16, found nvfp4";
  const auto is_gpu = [](const std::string& arch) { return arch != "cpu"; };
  const auto gpu = std::find_if(given.archs.begin(), given.archs.end(), is_gpu);
  if (gpu != given.archs.end()) {
    return error(Code::kUnsupported, "{}: {}", *gpu, known);
  }
  archs = {"cpu"};
  report.warnings.push_back(known + ": cpu alone is planned");
  return {};
}

Status add_rows(const PlanOptions& options, const std::string& arch, const std::vector<Op>& ops,
                PlanReport& report) {
  NIBBLE_ASSIGN_OR_RETURN(const DeviceLimits limits, kernels::device_limits(arch));
  if (!limits.warning.empty()) {
    report.warnings.push_back(limits.warning);
  }
  const std::vector<KernelRow> rows = kernel_rows();
  for (const std::int64_t tokens : options.tokens) {
    for (const Op& op : ops) {
      ProductProblem problem = op.problem;
      problem.tokens = tokens;
      problem.is_deterministic = options.is_deterministic;
      NIBBLE_ASSIGN_OR_RETURN(LaunchPlan plan, kernels::plan_product(problem, limits));
      judge_plan(rows, problem, limits.arch, plan);
      report.rows.push_back(row_of(op, problem, plan));
      report.rows.back().arch = kernels::arch_name(limits.arch);
    }
  }
  return {};
}

}  // namespace

Result<PlanReport> plan(const PlanOptions& options) {
  NIBBLE_ASSIGN_OR_RETURN(const ModelConfig config, config_of(options.model));
  NIBBLE_RETURN_IF_ERROR(model::check_tensor_parallel(config, options.tensor_parallel));
  PlanOptions filled = options;
  if (filled.archs.empty()) {
    filled.archs = {"sm_90", "sm_100", "sm_120", "cpu"};
  }
  if (filled.tokens.empty()) {
    filled.tokens = {1, 64, 8192};
  }
  std::int64_t width = config.intermediate;
  if (options.tensor_parallel > 1) {
    NIBBLE_ASSIGN_OR_RETURN(
        const kernels::ExpertShard shard,
        kernels::plan_expert_shard(
            {.intermediate = width, .num_ranks = options.tensor_parallel, .rank = 0}));
    width = shard.intermediate.value;
  }
  const std::vector<Op> ops = products(config, options.tensor_parallel, width);
  PlanReport report;
  if (config.has_nvfp4_experts) {
    NIBBLE_RETURN_IF_ERROR(restrict_nvfp4(options, filled.archs, report));
  }
  for (const std::string& arch : filled.archs) {
    NIBBLE_RETURN_IF_ERROR(add_rows(filled, arch, ops, report));
  }
  std::sort(report.warnings.begin(), report.warnings.end());
  report.warnings.erase(std::unique(report.warnings.begin(), report.warnings.end()),
                        report.warnings.end());
  return report;
}

}  // namespace nibble::commands
