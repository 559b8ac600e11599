#include "api/commands/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/folder.h"

namespace nibble::commands {
namespace {

using ::testing::HasSubstr;

const PlanRow& find(const PlanReport& report, const std::string& op, std::int64_t tokens) {
  for (const PlanRow& row : report.rows) {
    if (row.op == op && row.tokens == tokens) {
      return row;
    }
  }
  ADD_FAILURE() << op << ' ' << tokens;
  return report.rows.front();
}

TEST(PlanCommand, EveryProductOfThePublishedModelOnOneGpu) {
  const PlanReport report =
      plan({.model = "gpt-oss-120b", .archs = {"sm_120"}, .tokens = {1, 64, 8192}}).value();
  ASSERT_EQ(report.rows.size(), 18U);
  for (const PlanRow& row : report.rows) {
    EXPECT_EQ(row.arch, "sm_120");
    EXPECT_FALSE(row.verified);
    EXPECT_LE(row.shared_bytes, 99 * 1024);
    EXPECT_GE(row.num_stages, 1);
    EXPECT_EQ(row.padded_k, row.k);
    EXPECT_THAT(row.reason, HasSubstr("num_warps: "));
    EXPECT_THAT(row.reason, HasSubstr("unverified"));
    if (row.op.starts_with("moe") && !row.is_persistent) {
      EXPECT_GE(row.num_warps, 4) << row.op << row.tokens;
    }
  }
  EXPECT_EQ(find(report, "attn_qkv", 64).n, 5120);
  EXPECT_EQ(find(report, "attn_out", 64).k, 4096);
  EXPECT_EQ(find(report, "router", 64).n, 128);
  EXPECT_EQ(find(report, "moe_gate_up", 64).n, 5760);
  EXPECT_EQ(find(report, "moe_down", 64).k, 2880);
  EXPECT_EQ(find(report, "lm_head", 64).n, 201088);
}

TEST(PlanCommand, RanksHoldWholeBlocksAndHeads) {
  const PlanReport report =
      plan({.model = "gpt-oss-20b", .archs = {"sm_90"}, .tokens = {64}, .tensor_parallel = 4})
          .value();
  EXPECT_EQ(find(report, "attn_qkv", 64).n, 1280);
  EXPECT_EQ(find(report, "attn_out", 64).k, 1024);
  EXPECT_EQ(find(report, "router", 64).n, 32);
  EXPECT_EQ(find(report, "moe_gate_up", 64).n, 2 * 736);
  EXPECT_EQ(find(report, "moe_down", 64).k, 736);
  EXPECT_EQ(find(report, "lm_head", 64).n, 50272);
  const Status refused = plan({.model = "gpt-oss-20b", .tensor_parallel = 3}).error();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("possible: 1, 2, 4, 8"));
}

TEST(PlanCommand, DefaultsCoverEveryArchitecture) {
  const PlanReport report = plan({.model = "gpt-oss-20b"}).value();
  EXPECT_EQ(report.rows.size(), 4U * 3U * 6U);
  for (const PlanRow& row : report.rows) {
    EXPECT_EQ(row.verified, row.arch == "cpu");
  }
}

TEST(PlanCommand, ReadsACheckpoint) {
  const PlanReport report =
      plan({.model = NIBBLE_SOURCE_DIR "/models/demo", .archs = {"cpu"}, .tokens = {1}}).value();
  EXPECT_EQ(report.rows.size(), 6U);
  EXPECT_EQ(plan({.model = "/nowhere"}).error().code(), Code::kNotFound);
}

TEST(PlanCommand, OldAndUnknownArchitectures) {
  EXPECT_EQ(plan({.model = "gpt-oss-20b", .archs = {"sm_89"}}).error().code(), Code::kUnsupported);
  EXPECT_EQ(plan({.model = "gpt-oss-20b", .archs = {"tpu"}}).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(plan({.model = "gpt-oss-20b", .archs = {"cpu"}, .tokens = {0}}).error().code(),
            Code::kInvalidArgument);
  const PlanReport future = plan({.model = "gpt-oss-20b", .archs = {"sm_140", "sm_140"}}).value();
  ASSERT_EQ(future.warnings.size(), 1U);
  EXPECT_THAT(future.warnings[0], HasSubstr("sm_140 is not known"));
}

TEST(PlanCommand, Nvfp4ExpertsAreOfFourBitsAndForAProcessorOnly) {
  const testing_support::TemporaryFolder folder;
  std::string config =
      testing_support::read_file(NIBBLE_SOURCE_DIR "/tests/golden/tiny/config.json");
  const std::size_t at = config.find("\"mxfp4\"");
  ASSERT_NE(at, std::string::npos);
  config.replace(at, 7, "\"nvfp4\"");
  testing_support::write_file(folder / "config.json", config);
  const auto planned = plan({.model = folder.path()});
  ASSERT_TRUE(planned.has_value()) << planned.error().message();
  EXPECT_THAT(planned->warnings, testing::Contains(HasSubstr("found nvfp4: cpu alone")));
  for (const PlanRow& row : planned->rows) {
    EXPECT_EQ(row.arch, "cpu");
  }
  EXPECT_TRUE(plan({.model = folder.path(), .archs = {"cpu"}}).has_value());
  const auto refused = plan({.model = folder.path(), .archs = {"cpu", "sm_90"}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
  EXPECT_THAT(refused.error().message(), HasSubstr("sm_90: plans for GPUs know"));
}

}  // namespace
}  // namespace nibble::commands
