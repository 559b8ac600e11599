#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "unit/cli/fake_host.h"

namespace nibble::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

commands::PlanRow row(const std::string& op, bool verified) {
  commands::PlanRow row;
  row.arch = "sm_120";
  row.op = op;
  row.tokens = 64;
  row.form = "tiled";
  row.block_m = 16;
  row.block_n = 256;
  row.block_k = 128;
  row.num_warps = 4;
  row.num_stages = 2;
  row.layout = "strided";
  row.shared_bytes = 75776;
  row.verified = verified;
  row.rules = {{"form", "many rows"}, {"num_warps", op == "router" ? "few" : "at least 4"}};
  row.reason = "form: many rows; num_warps: at least 4";
  return row;
}

class Plan : public ::testing::Test {
 protected:
  Plan() {
    world_.engine.launch_plans =
        commands::PlanReport{{row("router", true), row("moe_down", false)}, {}};
  }
  World world_;
};

TEST_F(Plan, JsonIsAListOfRowsWithTheNamedFields) {
  const Ran ran = world_.run({"plan", "--json"});
  EXPECT_EQ(ran.exit_code, 0);
  const auto json = nlohmann::json::parse(ran.out);
  ASSERT_TRUE(json.is_array());
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[1]["arch"], "sm_120");
  EXPECT_EQ(json[1]["op"], "moe_down");
  EXPECT_EQ(json[1]["tokens"], 64);
  EXPECT_EQ(json[1]["num_warps"], 4);
  EXPECT_EQ(json[1]["block_k"], 128);
  EXPECT_EQ(json[1]["num_stages"], 2);
  EXPECT_EQ(json[1]["shared_bytes"], 75776);
  EXPECT_EQ(json[1]["layout"], "strided");
  EXPECT_EQ(json[1]["verified"], false);
  EXPECT_EQ(json[0]["verified"], true);
  EXPECT_EQ(json[1]["reason"], "form: many rows; num_warps: at least 4");
}

TEST_F(Plan, TableSaysUnverifiedAndGivesEachRuleOnce) {
  const std::string out = world_.run({"plan"}).out;
  EXPECT_THAT(out, HasSubstr("router    tiled  16 x 256 x 128"));
  EXPECT_THAT(out, HasSubstr("  unverified\n"));
  EXPECT_THAT(out, HasSubstr("form       many rows   1-2\n"));
  EXPECT_THAT(out, HasSubstr("num_warps  at least 4  2\n"));
}

TEST_F(Plan, FlagsReachTheRules) {
  world_.run({"plan", "gpt-oss-20b", "--arch", "sm_90,cpu", "--tokens", "1,64,8k", "-tp", "2",
              "--deterministic"});
  ASSERT_EQ(world_.engine.planned.size(), 1U);
  const commands::PlanOptions& options = world_.engine.planned[0];
  EXPECT_EQ(options.model, "gpt-oss-20b");  // a shape, not a folder
  EXPECT_THAT(options.archs, ElementsAre("sm_90", "cpu"));
  EXPECT_THAT(options.tokens, ElementsAre(1, 64, 8000));
  EXPECT_EQ(options.tensor_parallel, 2);
  EXPECT_TRUE(options.is_deterministic);
}

TEST_F(Plan, WithoutAModelTheDemoIsPlanned) {
  world_.run({"plan"});
  ASSERT_EQ(world_.engine.planned.size(), 1U);
  EXPECT_EQ(world_.engine.planned[0].model, world_.folder());
  EXPECT_THAT(world_.engine.planned[0].archs, IsEmpty());
  EXPECT_FALSE(world_.engine.planned[0].is_deterministic);
}

TEST_F(Plan, WarningsGoToStandardError) {
  world_.engine.launch_plans->warnings = {"sm_140 is not known"};
  const Ran ran = world_.run({"plan", "--json"});
  EXPECT_EQ(ran.err, "nibble plan: sm_140 is not known\n");
  EXPECT_TRUE(nlohmann::json::accept(ran.out));
}

TEST_F(Plan, FailuresHaveTheirExitCodes) {
  EXPECT_EQ(world_.run({"plan", "--tokens", "0"}).exit_code, 2);
  EXPECT_THAT(world_.run({"plan", "--tokens", "1,x"}).err, HasSubstr("--tokens: want"));
  EXPECT_EQ(world_.run({"plan", "/no/such/model"}).exit_code, 3);
  world_.engine.launch_plans = Status(Code::kInvalidArgument, "possible: 1, 2");
  EXPECT_EQ(world_.run({"plan", "-tp", "3"}).exit_code, 2);
  world_.engine.launch_plans = Status(Code::kUnsupported, "want 9.0");
  EXPECT_EQ(world_.run({"plan", "--arch", "sm_70"}).exit_code, 5);
  world_.engine.launch_plans = Status(Code::kCorrupt, "config.json");
  EXPECT_EQ(world_.run({"plan"}).exit_code, 3);
}

}  // namespace
}  // namespace nibble::cli
