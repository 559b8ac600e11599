#include "api/capability_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/machine_rules.h"

namespace nibble {
namespace {

// Best compute capability of the usable GPUs, 90 for 9.0; 0: none.
int usable_sm(const std::vector<GpuFacts>& gpus, const std::vector<Capability>& judged_gpus) {
  int best = 0;
  for (std::size_t index = 0; index < gpus.size(); ++index) {
    if (judged_gpus[index].is_usable) {
      best = std::max(best, gpus[index].major * 10 + gpus[index].minor);
    }
  }
  return best;
}

KernelCapability judge_kernel(const KernelRow& row, const CpuFeatures& cpu, int sm) {
  const kernels::InstanceInfo& info = row.info;
  const bool is_cuda = info.backend == kernels::Backend::kCuda;
  KernelCapability out{
      .family = row.family,
      .name = info.name,
      .backend = kernels::backend_name(info.backend),
      .needs = is_cuda ? fmt::format("sm_{}", info.min_sm) : kernels::isa_name(info.isa),
      .is_needed = row.is_needed,
      .is_verified = info.verified};
  if (is_cuda && sm < info.min_sm) {
    out.reason = sm == 0 ? "no usable GPU" : fmt::format("the GPU is sm_{}", sm);
  } else if (!is_cuda && !kernels::has_isa(info.isa, cpu)) {
    out.reason = "the processor lacks " + out.needs;
  } else if (!info.verified) {
    out.reason = "never run on its hardware";
  }
  out.is_runnable = out.reason.empty();
  return out;
}

// The first needed family without a runnable kernel that `matches`; empty: each has one.
template <typename Matches>
std::string first_gap(const std::vector<KernelCapability>& kernels, Matches matches) {
  std::set<std::string> covered;
  for (const KernelCapability& kernel : kernels) {
    if (kernel.is_runnable && matches(kernel)) {
      covered.insert(kernel.family);
    }
  }
  for (const KernelCapability& kernel : kernels) {
    if (kernel.is_needed && !covered.contains(kernel.family)) {
      return kernel.family;
    }
  }
  return "";
}

bool is_gpu(const Capability& item) {
  return item.name.starts_with("gpu ") && item.name[4] >= '0' && item.name[4] <= '9';
}

// Why not CUDA, given that it is not: the first thing that stands in the way.
std::string cuda_obstacle(const Capabilities& found, const std::string& gap) {
  const Capability* first_gpu = nullptr;
  for (const Capability& item : found.items) {
    if (item.name == "gpu driver" && !item.is_usable) {
      return item.version.empty() ? item.reason
                                  : fmt::format("driver {}: {}", item.version, item.reason);
    }
    if (is_gpu(item) && item.is_usable) {
      return fmt::format("family {} has no runnable CUDA kernel", gap);
    }
    if (is_gpu(item) && first_gpu == nullptr) {
      first_gpu = &item;
    }
  }
  return first_gpu == nullptr
             ? "the driver shows no GPU"
             : fmt::format("{} ({}): {}", first_gpu->name, first_gpu->place, first_gpu->reason);
}

void choose_backend(Capabilities& found) {
  if (found.kernels.empty()) {
    found.explanation = "this build has no kernels at all";
    return;
  }
  const std::string any_gap = first_gap(found.kernels, [](const auto&) { return true; });
  if (!any_gap.empty()) {
    found.explanation = fmt::format("kernel family {} has no kernel that runs here", any_gap);
    return;
  }
  found.can_run = true;
  const std::string cuda_gap =
      first_gap(found.kernels, [](const auto& kernel) { return kernel.backend == "cuda"; });
  found.backend = cuda_gap.empty() ? "cuda" : "cpu";
  found.explanation = cuda_gap.empty() ? "every kernel family has a CUDA kernel that runs here"
                                       : cuda_obstacle(found, cuda_gap);
}

}  // namespace

Capabilities evaluate(const MachineFacts& machine, const BuildFacts& build,
                      std::span<const KernelRow> kernels) {
  const Capability driver = judge_driver(machine, build);
  std::vector<Capability> gpus;
  for (const GpuFacts& gpu : machine.gpus) {
    gpus.push_back(judge_gpu(static_cast<int>(gpus.size()), gpu, driver, build));
  }
  Capabilities out;
  out.items = {judge_cpu(machine), judge_memory(machine), driver};
  out.items.insert(out.items.end(), gpus.begin(), gpus.end());
  if (gpus.size() > 1) {
    out.items.push_back(judge_group(machine.gpus, gpus));
  }
  out.items.push_back(judge_runtime(machine, build));
  out.items.push_back(judge_nccl(machine, build));
  out.items.push_back(judge_flashinfer(build));
  const int sm = usable_sm(machine.gpus, gpus);
  for (const KernelRow& row : kernels) {
    out.kernels.push_back(judge_kernel(row, machine.cpu, sm));
  }
  choose_backend(out);
  return out;
}

}  // namespace nibble
