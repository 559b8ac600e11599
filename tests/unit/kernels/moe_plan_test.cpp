// Every rule of moe_plan.h with a case on each side of its boundary.
#include "kernels/moe/moe_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace nibble::kernels {
namespace {

using ::testing::HasSubstr;

DeviceLimits on(const char* arch) { return device_limits(arch).value(); }

// First product of a gpt-oss-120b expert.
ProductProblem gate_up(std::int64_t tokens) {
  return {.tokens = tokens, .num_experts = 128, .top_k = 4, .n = 5760, .k = 2880};
}
ProductProblem dense(std::int64_t tokens, std::int64_t n = 5120, std::int64_t k = 2880) {
  return {.tokens = tokens, .n = n, .k = k, .w_dtype = DType::kBF16};
}
LaunchPlan plan(const ProductProblem& problem, const DeviceLimits& limits) {
  return plan_product(problem, limits).value();
}
std::string rule(const LaunchPlan& plan, const std::string& field) {
  for (const Decision& decision : plan.decisions) {
    if (decision.field == field) {
      return decision.rule;
    }
  }
  return "no rule";
}

TEST(MoePlan, EveryFieldHasOneRule) {
  for (const char* arch : {"cpu", "sm_90", "sm_100", "sm_120"}) {
    for (const std::int64_t tokens : {1, 8, 9, 8192}) {
      for (const ProductProblem& problem : {gate_up(tokens), dense(tokens)}) {
        const LaunchPlan have = plan(problem, on(arch));
        std::set<std::string> fields;
        for (const Decision& decision : have.decisions) {
          EXPECT_FALSE(decision.rule.empty());
          fields.insert(decision.field);
        }
        EXPECT_EQ(fields.size(), have.decisions.size()) << arch << tokens;
        EXPECT_EQ(fields.size(), 15U) << arch << tokens;
        EXPECT_EQ(have.decisions.front().field, "form");
        EXPECT_EQ(have.decisions.back().field, "verified");
      }
    }
  }
}

TEST(MoePlan, OnlyTheCpuIsVerified) {
  EXPECT_TRUE(plan(gate_up(64), on("cpu")).verified);
  for (const char* arch : {"sm_90", "sm_100", "sm_120"}) {
    EXPECT_FALSE(plan(gate_up(64), on(arch)).verified);
  }
}

TEST(MoePlan, EveryPlanFitsItsSharedMemory) {
  for (const char* arch : {"sm_90", "sm_100", "sm_120"}) {
    const DeviceLimits limits = on(arch);
    for (const std::int64_t tokens :
         {1,  2,   3,   4,   7,   8,    9,    15,   16,    17,    31,   32,
          33, 511, 512, 513, 767, 1023, 1024, 1025, 65535, 65536, 65537}) {
      for (ProductProblem problem : {gate_up(tokens), dense(tokens), dense(tokens, 201088)}) {
        for (const bool accumulates : {false, true}) {
          problem.accumulates = accumulates;
          const LaunchPlan have = plan(problem, limits);
          EXPECT_LE(have.shared_bytes, limits.shared_bytes) << arch << ' ' << tokens;
          EXPECT_GE(have.num_stages, 1) << arch << ' ' << tokens;
          EXPECT_GE(have.grid, 1);
        }
      }
    }
  }
}

TEST(MoePlan, SmallBatchesAreOutputCentricUpToTheNamedCount) {
  ASSERT_EQ(kOutputCentricTokens, 8);
  EXPECT_EQ(plan(gate_up(8), on("sm_90")).form, ProductForm::kOutputCentric);
  EXPECT_EQ(plan(gate_up(9), on("sm_90")).form, ProductForm::kTiled);
  ProductProblem deterministic = gate_up(8);
  deterministic.is_deterministic = true;
  EXPECT_EQ(plan(deterministic, on("sm_90")).form, ProductForm::kTiled);
}

TEST(MoePlan, OutputCentricActivationsMustFit) {
  // 8 rows of bf16: 16 bytes for each k, and 232448 / 16 = 14528.
  EXPECT_EQ(plan(dense(8, 64, 14528), on("sm_90")).form, ProductForm::kOutputCentric);
  EXPECT_EQ(plan(dense(8, 64, 14529), on("sm_90")).form, ProductForm::kTiled);
}

TEST(MoePlan, MatrixInstructionsStartAboveThreeTokens) {
  ASSERT_EQ(kFmaTokens, 3);
  const LaunchPlan fma = plan(gate_up(3), on("sm_90"));
  EXPECT_EQ(fma.tile_m, 3);
  EXPECT_EQ(fma.tile_n, 8);
  EXPECT_EQ(fma.shared_bytes, 3 * 2880 * 2);
  EXPECT_EQ(fma.grid, 720);
  const LaunchPlan mma = plan(gate_up(4), on("sm_90"));
  EXPECT_EQ(mma.tile_m, 8);
  EXPECT_EQ(mma.tile_n, 128);
  EXPECT_EQ(mma.shared_bytes, 8 * 2880 * 2);
  EXPECT_EQ(mma.tile_k, 1024);
  EXPECT_EQ(plan(dense(4), on("sm_90")).tile_k, 256);
}

TEST(MoePlan, StagesKeepFortyKilobytesInFlight) {
  // sm_90: 13 blocks of 17280 bytes would fit, 8 are wanted: 8 x 4096 bytes a stage.
  EXPECT_EQ(plan(gate_up(3), on("sm_90")).num_stages, 2);
  // sm_120: two blocks of 46080 bytes fit.
  EXPECT_EQ(plan(gate_up(8), on("sm_120")).num_stages, 5);
}

TEST(MoePlan, StridedFp4ScalesOnSm120WantFourWarps) {
  const LaunchPlan small = plan(gate_up(9), on("sm_120"));
  EXPECT_EQ(small.tile_m * small.tile_n, 4096);  // one warp's worth
  EXPECT_EQ(small.layout, WeightLayout::kStrided);
  EXPECT_FALSE(small.is_persistent);
  EXPECT_EQ(small.num_warps, 4);
  EXPECT_THAT(rule(small, "num_warps"), HasSubstr("at least 4"));
  // The floor does not lower anything: 128 x 256 takes 8.
  EXPECT_EQ(plan(gate_up(8192), on("sm_120")).num_warps, 8);
  // It is a rule of FP4 scales: the bf16 product of the same shape keeps one warp.
  ProductProblem bf16 = gate_up(9);
  bf16.w_dtype = DType::kBF16;
  EXPECT_EQ(plan(bf16, on("sm_120")).num_warps, 1);
  // And of sm_120: without TMA sm_100 falls back to strided and to one warp.
  DeviceLimits bare = on("sm_100");
  bare.has_tma = false;
  EXPECT_EQ(plan(gate_up(9), bare).num_warps, 1);
}

TEST(MoePlan, PersistentKernelsWantFourWarps) {
  const LaunchPlan small = plan(gate_up(9), on("sm_100"));
  EXPECT_TRUE(small.is_persistent);
  EXPECT_EQ(small.tile_m * small.tile_n, 4096);
  EXPECT_EQ(small.num_warps, 4);
}

TEST(MoePlan, Sm120HalvesTileKUntilAStageFitsNinetyNineKilobytes) {
  ASSERT_EQ(on("sm_120").shared_bytes, 101376);
  // 64 rows: 64 * 256 * 2 + 256 * 256 + 2048 = 100352 bytes fit; 128 rows would take 133120.
  const LaunchPlan fits = plan(gate_up(1024), on("sm_120"));
  EXPECT_EQ(fits.tile_m, 64);
  EXPECT_EQ(fits.tile_k, 256);
  EXPECT_EQ(fits.num_stages, 1);
  EXPECT_EQ(fits.shared_bytes, 100352);
  const LaunchPlan halved = plan(gate_up(8192), on("sm_120"));
  EXPECT_EQ(halved.tile_m, 128);
  EXPECT_EQ(halved.tile_k, 128);
  EXPECT_EQ(halved.num_stages, 1);
  EXPECT_EQ(halved.shared_bytes, 66560);
  EXPECT_THAT(rule(halved, "block_k"), HasSubstr("halved from 256"));
  DeviceLimits one_less = on("sm_120");
  one_less.shared_bytes = 100351;
  EXPECT_EQ(plan(gate_up(1024), one_less).tile_k, 128);
}

TEST(MoePlan, NothingFitsIsRefusedWithTheNumbers) {
  DeviceLimits tiny = on("sm_120");
  tiny.shared_bytes = 16640;  // tile_m 128, tile_n 256, tile_k 32: 8192 + 8192 + 256
  EXPECT_EQ(plan(gate_up(8192), tiny).tile_k, 32);
  tiny.shared_bytes = 16639;
  const Status refused = plan_product(gate_up(8192), tiny).error();
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("a stage of 16640 bytes exceeds 16639"));
}

TEST(MoePlan, NoPersistenceWithoutTma) {
  EXPECT_TRUE(plan(dense(8192), on("sm_90")).is_persistent);
  DeviceLimits bare = on("sm_90");
  bare.has_tma = false;
  EXPECT_FALSE(plan(dense(8192), bare).is_persistent);
  EXPECT_THAT(rule(plan(dense(8192), bare), "persistent"), HasSubstr("no TMA"));
  EXPECT_TRUE(plan(gate_up(8192), on("sm_100")).is_persistent);
  bare = on("sm_100");
  bare.has_tma = false;
  const LaunchPlan strided = plan(gate_up(8192), bare);
  EXPECT_FALSE(strided.is_persistent);
  EXPECT_EQ(strided.layout, WeightLayout::kStrided);
}

TEST(MoePlan, TmaDoesNotLoadFourBitWeightsOfOtherLayouts) {
  EXPECT_FALSE(plan(gate_up(8192), on("sm_90")).is_persistent);
  EXPECT_FALSE(plan(gate_up(8192), on("sm_120")).is_persistent);
  EXPECT_FALSE(plan(dense(8192), on("sm_120")).is_persistent);
}

TEST(MoePlan, PersistenceStartsAtTwoTilesAnSm) {
  // Tiles of 128 x 256: n = 33 * 256 makes 33 tiles for each 128 rows; 264 = 2 * 132 at 1024 rows.
  const LaunchPlan two = plan(dense(1024, 33 * 256), on("sm_90"));
  EXPECT_TRUE(two.is_persistent);
  EXPECT_EQ(rule(two, "persistent"), "2.00 tiles an SM >= 2");
  const LaunchPlan fewer = plan(dense(896, 33 * 256), on("sm_90"));
  EXPECT_FALSE(fewer.is_persistent);
  EXPECT_EQ(rule(fewer, "persistent"), "1.75 tiles an SM < 2");
  ProductProblem narrow = dense(896, 33 * 256);
  narrow.x_dtype = DType::kE4M3;
  EXPECT_TRUE(plan(narrow, on("sm_90")).is_persistent);
  EXPECT_THAT(rule(plan(narrow, on("sm_90")), "persistent"), HasSubstr("8-bit activations"));
  ProductProblem wide = dense(1024, 33 * 256);
  wide.out_dtype = DType::kF32;
  EXPECT_FALSE(plan(wide, on("sm_90")).is_persistent);
}

TEST(MoePlan, SmallProductsAreNotPersistent) {
  DeviceLimits one_sm = on("sm_90");
  one_sm.num_sms = 1;
  ProductProblem problem = dense(128, 1024, 1);  // 131072 products, 4 tiles
  EXPECT_TRUE(plan(problem, one_sm).is_persistent);
  EXPECT_EQ(plan(problem, one_sm).tile_k, 32);  // never fewer when persistent
  problem.tokens = 127;
  EXPECT_FALSE(plan(problem, one_sm).is_persistent);
}

TEST(MoePlan, LayoutFollowsArchitectureAndNeverTheRowCount) {
  for (const std::int64_t tokens : {1, 64, 8192}) {
    EXPECT_EQ(plan(gate_up(tokens), on("cpu")).layout, WeightLayout::kStrided);
    EXPECT_EQ(plan(gate_up(tokens), on("sm_90")).layout, WeightLayout::kHopper);
    EXPECT_EQ(plan(gate_up(tokens), on("sm_100")).layout, WeightLayout::kBlackwell);
    EXPECT_EQ(plan(gate_up(tokens), on("sm_120")).layout, WeightLayout::kStrided);
    EXPECT_EQ(plan(dense(tokens), on("sm_90")).layout, WeightLayout::kStrided);
  }
  EXPECT_THAT(rule(plan(gate_up(64), on("sm_120")), "layout"), HasSubstr("sm_120 FP4: strided"));
  DeviceLimits bare = on("sm_100");
  bare.has_tma = false;
  EXPECT_THAT(rule(plan(gate_up(64), bare), "layout"), HasSubstr("without TMA"));
  EXPECT_EQ(form_name(ProductForm::kTiled), "tiled");
  EXPECT_EQ(form_name(ProductForm::kOutputCentric), "output_centric");
}

TEST(MoePlan, TileMDoublesTheMeanUntilSixtyFourRowsAnExpert) {
  // 128 experts, top 4: rows an expert = tokens / 32.
  EXPECT_EQ(plan(gate_up(287), on("sm_90")).tile_m, 16);      // 8 rows
  EXPECT_EQ(plan(gate_up(288), on("sm_90")).tile_m, 32);      // 9
  EXPECT_EQ(plan(gate_up(64 * 32), on("sm_90")).tile_m, 64);  // doubled to 128, capped
  EXPECT_EQ(plan(gate_up(65 * 32), on("sm_90")).tile_m, 128);
  EXPECT_EQ(plan(dense(64), on("sm_90")).tile_m, 64);  // dense: as many as there are
  EXPECT_EQ(plan(dense(65), on("sm_90")).tile_m, 128);
  EXPECT_EQ(plan(dense(100'000), on("sm_90")).tile_m, 128);
}

TEST(MoePlan, TileMIsWiderOnSm100FromSixteenRows) {
  EXPECT_EQ(plan(gate_up(15 * 32), on("sm_100")).tile_m, 32);
  EXPECT_EQ(plan(gate_up(16 * 32), on("sm_100")).tile_m, 128);
  EXPECT_EQ(plan(gate_up(16 * 32), on("sm_90")).tile_m, 32);
  EXPECT_EQ(plan(gate_up(64 * 32), on("sm_100")).tile_m, 128);  // the last row count that doubles
  ProductProblem narrow = gate_up(16 * 32);
  narrow.x_dtype = DType::kE4M3;
  EXPECT_EQ(plan(narrow, on("sm_100")).tile_m, 32);
}

TEST(MoePlan, DeterminismFixesTileAndSplit) {
  for (const std::int64_t tokens : {1, 64, 8192}) {
    ProductProblem problem = dense(tokens, 128);
    problem.is_deterministic = true;
    EXPECT_EQ(plan(problem, on("sm_90")).tile_m, 128);
    EXPECT_EQ(plan(problem, on("sm_90")).split_k, 1);
    problem = gate_up(tokens);
    problem.is_deterministic = true;
    EXPECT_EQ(plan(problem, on("sm_100")).tile_m, 128);
  }
}

TEST(MoePlan, TileNFollowsLayoutThenN) {
  EXPECT_EQ(plan(gate_up(64), on("sm_90")).tile_n, 256);
  EXPECT_EQ(plan(gate_up(64), on("sm_90")).num_warps, 8);
  EXPECT_EQ(plan(dense(64, 129), on("sm_90")).tile_n, 256);
  EXPECT_EQ(plan(dense(64, 128), on("sm_90")).tile_n, 128);
  EXPECT_EQ(plan(dense(64, 33), on("sm_90")).tile_n, 64);
  EXPECT_EQ(plan(dense(64, 5), on("sm_90")).tile_n, 16);
}

TEST(MoePlan, TileKFollowsTheNarrowerOperand) {
  EXPECT_EQ(plan(gate_up(64), on("sm_90")).tile_k, 128);   // FP4 unpacked first
  EXPECT_EQ(plan(gate_up(64), on("sm_120")).tile_k, 256);  // native
  EXPECT_EQ(plan(gate_up(64), on("sm_100")).tile_k, 128);  // native, persistent
  EXPECT_EQ(plan(dense(64), on("sm_90")).tile_k, 64);
  EXPECT_EQ(plan(dense(64, 256, 32), on("sm_90")).tile_k, 32);
  EXPECT_EQ(plan(dense(64, 256, 9), on("sm_90")).tile_k, 16);
  EXPECT_EQ(plan(dense(64, 256, 5), on("sm_90")).tile_k, 16);  // never fewer
  ProductProblem added = dense(64);
  added.accumulates = true;
  EXPECT_EQ(plan(added, on("sm_90")).tile_k, 32);
  EXPECT_EQ(plan(added, on("sm_100")).tile_k, 64);
  // 16 columns are for two operands of 16 bits, and so is the limit of a product that is added.
  added.x_dtype = DType::kE4M3;
  EXPECT_EQ(plan(added, on("sm_90")).tile_k, 128);
  added.k = 9;
  EXPECT_EQ(plan(added, on("sm_90")).tile_k, 32);
}

TEST(MoePlan, WideSwapForNarrowActivationsAndLongK) {
  ProductProblem problem = gate_up(128);  // 4 rows an expert
  problem.x_dtype = DType::kE4M3;
  problem.k = 4096;
  EXPECT_EQ(plan(problem, on("sm_100")).tile_n, 128);
  EXPECT_EQ(plan(problem, on("sm_100")).tile_k, 256);
  ProductProblem other = problem;
  other.k = 4064;
  EXPECT_EQ(plan(other, on("sm_100")).tile_n, 256);
  other = problem;
  other.tokens = 63;  // one row
  EXPECT_EQ(plan(other, on("sm_100")).tile_n, 256);
  other = problem;
  other.tokens = 64 * 32;  // tile_m 64
  EXPECT_EQ(plan(other, on("sm_100")).tile_n, 128);
  other.tokens = 65 * 32;  // tile_m 128
  EXPECT_EQ(plan(other, on("sm_100")).tile_n, 256);
  other = problem;
  other.x_dtype = DType::kBF16;
  EXPECT_EQ(plan(other, on("sm_100")).tile_n, 256);
  EXPECT_EQ(plan(problem, on("sm_90")).tile_n, 256);
}

TEST(MoePlan, WarpsHoldFourThousandAccumulators) {
  EXPECT_EQ(plan(dense(16), on("sm_90")).num_warps, 1);
  EXPECT_EQ(rule(plan(dense(16), on("sm_90")), "num_warps"), "block_m * block_n / 4096");
  EXPECT_EQ(plan(dense(17), on("sm_90")).num_warps, 2);
  EXPECT_EQ(plan(dense(128), on("sm_90")).num_warps, 8);
}

TEST(MoePlan, StagesOfHopperExperts) {
  // tile_m * 256 + 16384 bytes a stage.
  EXPECT_EQ(plan(gate_up(8192), on("sm_90")).num_stages, 4);
  EXPECT_EQ(plan(gate_up(8192), on("sm_90")).shared_bytes, 4 * 49152);
  EXPECT_EQ(plan(gate_up(64), on("sm_90")).num_stages, 4);  // 11 would fit
  DeviceLimits small = on("sm_90");
  small.shared_bytes = 4 * 49152 - 1;
  EXPECT_EQ(plan(gate_up(8192), small).num_stages, 3);
}

TEST(MoePlan, StagesOfPersistentKernelsLeaveRoomForTheEpilogue) {
  // A stage: 128 * 128 * 2 + 2 * 128 * 256 / 2 + 256 * 4 + 8 = 66568. The epilogue's tile takes
  // 132 * 256 * 2 = 67584 bytes, which leaves two stages; so does a half; a quarter leaves three.
  const LaunchPlan have = plan(gate_up(8192), on("sm_100"));
  EXPECT_EQ(have.num_stages, 3);
  EXPECT_EQ(have.epilogue_subtile, 4);
  EXPECT_EQ(have.shared_bytes, 3 * 66568 + 16896);
  ProductProblem added = gate_up(8192);
  added.accumulates = true;
  EXPECT_EQ(plan(added, on("sm_100")).shared_bytes, 3 * 66568 + 21120);
  EXPECT_EQ(plan(added, on("sm_100")).epilogue_subtile, 4);
  DeviceLimits wide = on("sm_100");
  wide.shared_bytes = 3 * 66568 + 33792;  // three stages and half a tile
  EXPECT_EQ(plan(gate_up(8192), wide).epilogue_subtile, 2);
  DeviceLimits small = on("sm_100");
  small.shared_bytes = 3 * 66568 + 16895;  // two stages in any case: the whole tile at once
  EXPECT_EQ(plan(gate_up(8192), small).num_stages, 2);
  EXPECT_EQ(plan(gate_up(8192), small).epilogue_subtile, 1);
}

TEST(MoePlan, SplitKFillsIdleSmsOfDenseProductsOnly) {
  // One tile of 16 x 128; 132 SMs idle, 2880 / 64 = 45 steps, 45 / 4 = 11.
  EXPECT_EQ(plan(dense(9, 128), on("sm_90")).split_k, 11);
  EXPECT_EQ(plan(dense(9, 128, 64 * 7), on("sm_90")).split_k, 1);
  EXPECT_EQ(plan(dense(9, 128, 64 * 8), on("sm_90")).split_k, 2);
  EXPECT_EQ(plan(dense(9, 67 * 256), on("sm_90")).split_k, 1);  // 67 tiles: not even two an SM
  EXPECT_EQ(plan(dense(9, 66 * 256), on("sm_90")).split_k, 2);
  ProductProblem expert = gate_up(9);
  expert.n = 128;
  EXPECT_EQ(plan(expert, on("sm_90")).split_k, 1);
  expert.w_dtype = DType::kBF16;
  EXPECT_EQ(plan(expert, on("sm_90")).split_k, 1);
}

TEST(MoePlan, KOf2880IsNotPadded) {
  for (const std::int64_t tokens : {1, 64, 8192}) {
    for (const char* arch : {"cpu", "sm_120"}) {
      EXPECT_EQ(plan(gate_up(tokens), on(arch)).padded_k, 2880) << arch;
      EXPECT_EQ(plan(gate_up(tokens), on(arch)).padded_n, 5760) << arch;
    }
    // Stored tiles only; the product masks its tail.
    const LaunchPlan hopper = plan(gate_up(tokens), on("sm_90"));
    EXPECT_EQ(hopper.padded_k, 2944);
    EXPECT_THAT(rule(hopper, "padded_k"), HasSubstr("k = 2880 unpadded"));
    EXPECT_EQ(plan(gate_up(tokens), on("sm_100")).padded_k, 3072);
  }
  EXPECT_EQ(rule(plan(gate_up(64), on("sm_120")), "padded_n"), "unpadded");
  EXPECT_EQ(rule(plan(gate_up(64), on("sm_90")), "padded_n"), "whole tiles of the layout");
  ProductProblem odd = gate_up(64);
  odd.n = 5760 + 32;
  EXPECT_EQ(plan(odd, on("sm_90")).padded_n, 5824);
  EXPECT_EQ(plan(odd, on("sm_100")).padded_n, 5888);
  odd.n = 5760 + 160;
  EXPECT_EQ(plan(odd, on("sm_100")).padded_n, 6016);
  odd.k = 2816;
  EXPECT_EQ(plan(odd, on("sm_100")).padded_k, 2816);
}

// docs/routing.md has the table of bounds for 16, 32, 64 and 128 rows a block.
TEST(MoePlan, GridIsTheBoundOverAllDistributions) {
  EXPECT_EQ(plan(gate_up(32), on("sm_90")).grid, 128 * 23);   // 128 rows, 128 experts
  EXPECT_EQ(plan(gate_up(128), on("sm_90")).grid, 152 * 23);  // 512 rows, tile_m 16
  EXPECT_THAT(rule(plan(gate_up(128), on("sm_90")), "grid"), HasSubstr("every distribution"));
  EXPECT_EQ(plan(dense(129), on("sm_90")).grid, 2 * 20);
  EXPECT_THAT(rule(plan(dense(129), on("sm_90")), "grid"), HasSubstr("tiles of m"));
  EXPECT_EQ(plan(gate_up(8192), on("sm_100")).grid, 148);
}

TEST(MoePlan, RefusesSizesWithoutMeaning) {
  const DeviceLimits limits = on("sm_90");
  EXPECT_THAT(plan_product(gate_up(0), limits).error().message(), HasSubstr("got 0, 5760, 2880"));
  EXPECT_TRUE(plan_product(dense(1, 1, 1), limits).has_value());
  EXPECT_THAT(plan_product(dense(1, 0, 1), limits).error().message(), HasSubstr("got 1, 0, 1"));
  EXPECT_THAT(plan_product(dense(1, 1, 0), limits).error().message(), HasSubstr("got 1, 1, 0"));
  ProductProblem problem = gate_up(1);
  problem.top_k = 0;
  EXPECT_THAT(plan_product(problem, limits).error().message(), HasSubstr("got 0 of 128"));
  problem = dense(1, 1, 1);
  problem.num_experts = -1;
  EXPECT_THAT(plan_product(problem, limits).error().message(), HasSubstr("got 1 of -1"));
  problem = gate_up(1);
  problem.k = 2881;
  EXPECT_THAT(plan_product(problem, limits).error().message(),
              HasSubstr("whole blocks of 32, got 2881"));
  problem = gate_up(1);
  problem.top_k = 129;
  EXPECT_THAT(plan_product(problem, limits).error().message(), HasSubstr("got 129 of 128"));
  problem = gate_up(1);
  problem.w_dtype = DType::kI8;
  EXPECT_EQ(plan_product(problem, limits).error().code(), Code::kUnsupported);
}

TEST(DeviceLimits, CapabilitiesMapToDocumentedFamilies) {
  struct Row {
    const char* text;
    Arch arch;
    bool warns;
  };
  for (const Row& row : {Row{"sm_90", Arch::kSm90, false}, Row{"sm_90a", Arch::kSm90, false},
                         Row{"9.0", Arch::kSm90, false}, Row{"sm_100", Arch::kSm100, false},
                         Row{"sm_100a", Arch::kSm100, false}, Row{"10.3", Arch::kSm100, false},
                         Row{"sm_103a", Arch::kSm100, false}, Row{"sm_110", Arch::kSm120, true},
                         Row{"sm_120", Arch::kSm120, false}, Row{"12.1", Arch::kSm120, false},
                         Row{"sm_130", Arch::kSm120, true}, Row{"11.9", Arch::kSm120, true},
                         Row{"12.9", Arch::kSm120, false}, Row{"cpu", Arch::kCpu, false}}) {
    const Result<DeviceLimits> limits = device_limits(row.text);
    ASSERT_TRUE(limits.has_value()) << row.text;
    EXPECT_EQ(limits->arch, row.arch) << row.text;
    EXPECT_EQ(!limits->warning.empty(), row.warns) << row.text;
  }
}

TEST(DeviceLimits, OldCapabilitiesAndOtherTextsAreRefused) {
  for (const char* text : {"sm_70", "8.0", "sm_86", "8.9"}) {
    EXPECT_EQ(device_limits(text).error().code(), Code::kUnsupported) << text;
    EXPECT_THAT(device_limits(text).error().message(), HasSubstr(text));
  }
  for (const char* text : {"", "sm_", "gpu", "sm_9", "sm_90x", "1200", "sm_-90"}) {
    EXPECT_EQ(device_limits(text).error().code(), Code::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace nibble::kernels
