#include "api/kernel_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/convert/gather_rows.h"
#include "kernels/decode/decode_step.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/moe.h"
#include "kernels/moe/moe_tiles.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/quantize/quantize.h"
#include "kernels/random/random_fill.h"
#include "kernels/random/random_tiles.h"
#include "kernels/rope/rope_store.h"
#include "kernels/route/top_k.h"
#include "kernels/sample/pick_ids.h"
#include "kernels/sample/sample_rows.h"

namespace nibble {
namespace {

template <typename Args>
void append(const char* family, std::span<const kernels::Instance<Args>> table,
            std::vector<KernelRow>& rows, bool is_needed = true) {
  for (const kernels::Instance<Args>& row : table) {
    rows.push_back({family, row.info, is_needed});
  }
}

// Of a family that a forward pass does without.
template <typename Args>
void append_other(const char* family, std::span<const kernels::Instance<Args>> table,
                  std::vector<KernelRow>& rows) {
  for (const kernels::Instance<Args>& row : table) {
    rows.push_back({family, row.info, false});
  }
}

bool is_for(const kernels::InstanceInfo& info, kernels::Arch arch) {
  switch (arch) {
    case kernels::Arch::kCpu: return info.backend == kernels::Backend::kCpu;
    case kernels::Arch::kSm90: return info.min_sm / 10 == 9;
    case kernels::Arch::kSm100: return info.min_sm / 10 == 10;
    case kernels::Arch::kSm120: return info.min_sm / 10 == 12;
  }
  return false;
}

}  // namespace

std::vector<KernelRow> kernel_rows() {
  std::vector<KernelRow> rows;
  append("attention", kernels::attention_instances(), rows);
  append("decode_step", kernels::decode_step_instances(), rows, false);
  append("gather_rows", kernels::gather_rows_instances(), rows);
  append("gemm", kernels::gemm_instances(), rows);
  append("moe", kernels::moe_instances(), rows);
  append("moe_tiles", kernels::moe_tiles_instances(), rows);
  append("rms_norm", kernels::rms_norm_instances(), rows);
  append("rope_store", kernels::rope_store_instances(), rows);
  append("top_k", kernels::top_k_instances(), rows);
  append_other("pick_ids", kernels::pick_ids_instances(), rows);
  append_other("random_fill", kernels::random_fill_instances(), rows);
  append_other("random_tiles", kernels::random_tiles_instances(), rows);
  append_other("sample_rows", kernels::sample_rows_instances(), rows);
  for (const kernels::InstanceInfo& info : kernels::quantize_instances()) {
    rows.push_back({"quantize", info, false});
  }
  return rows;
}

bool has_verified_kernel(std::span<const KernelRow> rows, std::string_view family,
                         kernels::Arch arch) {
  return std::any_of(rows.begin(), rows.end(), [&](const KernelRow& row) {
    return row.family == family && row.info.verified && is_for(row.info, arch);
  });
}

void judge_plan(std::span<const KernelRow> rows, const kernels::ProductProblem& problem,
                kernels::Arch arch, kernels::LaunchPlan& plan) {
  const char* family = problem.num_experts > 0 ? "moe" : "gemm";
  plan.verified = has_verified_kernel(rows, family, arch);
  for (kernels::Decision& decision : plan.decisions) {
    if (decision.field == "verified") {
      decision.rule =
          plan.verified
              ? fmt::format("the {} kernels are tested against the scalar reference", family)
              : fmt::format("unverified: no {} kernel of {} has been run by this project", family,
                            kernels::arch_name(arch));
    }
  }
}

}  // namespace nibble
