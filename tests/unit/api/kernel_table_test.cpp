#include "api/kernel_table.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string>

#include "api/capability_rules.h"
#include "nibble/capabilities.h"
#include "tensor/machine_facts.h"

namespace nibble {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(KernelTable, HasEveryFamilyInOrderWithItsPlainestRowFirst) {
  std::vector<std::string> families;
  for (const KernelRow& row : kernel_rows()) {
    if (families.empty() || families.back() != row.family) {
      families.emplace_back(row.family);
      EXPECT_EQ(row.info.backend, kernels::Backend::kScalar);
    }
  }
  EXPECT_THAT(families, ElementsAre("attention", "gather_rows", "gemm", "moe", "rms_norm",
                                    "rope_store", "top_k", "pick_ids", "random_fill",
                                    "random_tiles", "sample_rows", "quantize"));
}

TEST(KernelTable, NamesAreUniqueAndBeginWithTheirFamily) {
  std::set<std::string> names;
  for (const KernelRow& row : kernel_rows()) {
    EXPECT_TRUE(names.insert(row.info.name).second) << row.info.name;
    EXPECT_TRUE(std::string(row.info.name).starts_with(row.family)) << row.info.name;
  }
}

TEST(KernelTable, EveryRowThatRunsSaysSoAndTheOthersSayWhyNot) {
  const Capabilities found = capabilities();
  const std::vector<KernelRow> rows = kernel_rows();
  ASSERT_EQ(found.kernels.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(found.kernels[i].name, rows[i].info.name);
    if (rows[i].info.backend != kernels::Backend::kCuda) {
      EXPECT_EQ(found.kernels[i].is_runnable, kernels::runs_here(rows[i].info));
    }
    EXPECT_EQ(found.kernels[i].reason.empty(), found.kernels[i].is_runnable);
  }
  EXPECT_TRUE(found.can_run) << found.explanation;
}

TEST(KernelTable, VerifiedIsAskedForEachArchitecture) {
  using kernels::Arch;
  const std::vector<KernelRow> rows = {
      {"gemm", {.name = "gemm_ref"}},
      {"gemm", {.name = "gemm_cpu", .backend = kernels::Backend::kCpu}},
      {"attention", {.name = "attention_ref"}},  // what others are compared with is no kernel
      {"gemm", {"gemm_90", kernels::Backend::kCuda, kernels::CpuIsa::kAny, 90, true}},
      {"gemm", {"gemm_100", kernels::Backend::kCuda, kernels::CpuIsa::kAny, 100, false}},
      {"moe", {"moe_x", kernels::Backend::kCpu, kernels::CpuIsa::kAvx2, 0, false}}};
  EXPECT_TRUE(has_verified_kernel(rows, "gemm", Arch::kCpu));
  EXPECT_TRUE(has_verified_kernel(rows, "gemm", Arch::kSm90));
  EXPECT_FALSE(has_verified_kernel(rows, "gemm", Arch::kSm100));
  EXPECT_FALSE(has_verified_kernel(rows, "gemm", Arch::kSm120));
  EXPECT_FALSE(has_verified_kernel(rows, "moe", Arch::kCpu));
  EXPECT_FALSE(has_verified_kernel(rows, "attention", Arch::kCpu));
}

TEST(KernelTable, APlanIsVerifiedWhenAKernelOfItsFamilyIs) {
  const std::vector<KernelRow> rows = {
      {"gemm", {.name = "gemm_cpu", .backend = kernels::Backend::kCpu}}};
  kernels::ProductProblem problem{.tokens = 1, .n = 64, .k = 64};
  const kernels::DeviceLimits limits = kernels::device_limits("cpu").value();
  kernels::LaunchPlan plan = kernels::plan_product(problem, limits).value();
  judge_plan(rows, problem, limits.arch, plan);
  EXPECT_TRUE(plan.verified);
  EXPECT_THAT(plan.decisions.back().rule, Not(HasSubstr("unverified")));
  problem.num_experts = 4;
  judge_plan(rows, problem, limits.arch, plan);
  EXPECT_FALSE(plan.verified);
  EXPECT_EQ(plan.decisions.back().field, "verified");
  EXPECT_EQ(plan.decisions.back().rule,
            "unverified: no moe kernel of cpu has been run by this project");
}

}  // namespace
}  // namespace nibble
