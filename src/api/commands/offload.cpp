#include "api/commands/offload.h"

#include <algorithm>

#include "base/error.h"

namespace nibble::commands {
namespace {

// Workspace of a step, captured graphs and the driver's own context; to be measured when the GPU
// engine is there, until then a round figure above what such engines take.
constexpr std::int64_t kGpuReserveBytes = std::int64_t{1} << 30U;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
double gib(std::int64_t bytes) { return static_cast<double>(bytes) / kGiB; }

double ms(double bytes, double rate) { return rate > 0.0 ? 1e3 * bytes / rate : 0.0; }

OffloadPlan split_at(const OffloadProblem& problem, std::int32_t n_cpu_moe) {
  const std::int64_t on_gpu = problem.num_layers - n_cpu_moe;
  OffloadPlan plan{.n_cpu_moe = n_cpu_moe,
                   .gpu_weight_bytes = problem.other_bytes + on_gpu * problem.layer_expert_bytes,
                   .gpu_cache_bytes = problem.cache_bytes,
                   .gpu_reserve_bytes = kGpuReserveBytes,
                   .host_total_bytes = n_cpu_moe * problem.layer_expert_bytes};
  plan.gpu_total_bytes = plan.gpu_weight_bytes + plan.gpu_cache_bytes + plan.gpu_reserve_bytes;
  const double host_part = static_cast<double>(n_cpu_moe) / problem.num_layers;
  const double host_bytes = host_part * static_cast<double>(problem.token_expert_bytes);
  const double gpu_bytes = static_cast<double>(problem.token_other_bytes) +
                           static_cast<double>(problem.token_expert_bytes) - host_bytes;
  plan.gpu_ms = ms(gpu_bytes, problem.gpu_rate);
  plan.host_ms = ms(host_bytes, problem.host_rate);
  const double total_ms = plan.gpu_ms + plan.host_ms;
  plan.tokens_per_second = total_ms > 0.0 ? 1e3 / total_ms : 0.0;
  return plan;
}

bool fits(const OffloadProblem& problem, const OffloadPlan& plan) {
  return plan.gpu_total_bytes <= problem.gpu_bytes && plan.host_total_bytes <= problem.host_bytes;
}

// The GPU fills as N falls, the host as it rises: the first N that the GPU can hold is the only
// candidate.
std::int32_t least_that_fits(const OffloadProblem& problem) {
  for (std::int32_t n = 0; n <= problem.num_layers; ++n) {
    if (fits(problem, split_at(problem, n))) {
      return n;
    }
  }
  return -1;
}

Status refusal(const OffloadProblem& problem, const OffloadPlan& plan) {
  const std::int32_t least = least_that_fits(problem);
  const std::string advice =
      least >= 0 ? fmt::format("--n-cpu-moe {} fits", least)
                 : std::string("no split fits; a smaller --max-model-len needs less cache");
  return error(Code::kExhausted,
               "{} with --n-cpu-moe {}: want {:.2f} GiB on the GPU and {:.2f} GiB of host memory, "
               "found {:.2f} and {:.2f} GiB; {}",
               problem.name, plan.n_cpu_moe, gib(plan.gpu_total_bytes), gib(plan.host_total_bytes),
               gib(problem.gpu_bytes), gib(problem.host_bytes), advice);
}

}  // namespace

Result<OffloadPlan> plan_offload(const OffloadProblem& problem, std::int32_t n_cpu_moe) {
  if (problem.num_layers < 1 || n_cpu_moe < -1 || n_cpu_moe > problem.num_layers) {
    return error(Code::kInvalidArgument, "--n-cpu-moe: want 0 to {}, the model's layers, found {}",
                 problem.num_layers, n_cpu_moe);
  }
  if (n_cpu_moe >= 0) {
    const OffloadPlan plan = split_at(problem, n_cpu_moe);
    return fits(problem, plan) ? Result<OffloadPlan>(plan) : refusal(problem, plan);
  }
  const std::int32_t least = least_that_fits(problem);
  return least >= 0 ? Result<OffloadPlan>(split_at(problem, least))
                    : refusal(problem, split_at(problem, problem.num_layers));
}

}  // namespace nibble::commands
