#include <gtest/gtest.h>

#include <string>

#include "kernels/moe/moe_tiles.h"

namespace nibble::kernels {
namespace {

TEST(MoeTiles, FormFollowsRowsOfAnExpert) {
  const auto form = [](std::int32_t tokens, std::int32_t experts) {
    return moe_tiles_form(tokens, 4, experts);
  };
  EXPECT_EQ(form(1, 32), MoeTilesForm::kStream8);
  EXPECT_EQ(form(8, 4), MoeTilesForm::kStream8);  // no expert can have a ninth row
  EXPECT_EQ(form(32, 32), MoeTilesForm::kStream8);
  EXPECT_EQ(form(33, 32), MoeTilesForm::kStream16);
  EXPECT_EQ(form(16, 4), MoeTilesForm::kStream16);  // nor a seventeenth
  EXPECT_EQ(form(64, 32), MoeTilesForm::kStream16);
  EXPECT_EQ(form(65, 32), MoeTilesForm::kGrouped48);
  EXPECT_EQ(form(320, 32), MoeTilesForm::kGrouped48);
  EXPECT_EQ(form(321, 32), MoeTilesForm::kGrouped192);
  EXPECT_EQ(form(128, 128), MoeTilesForm::kStream8);
  EXPECT_EQ(form(8192, 128), MoeTilesForm::kGrouped192);
}

TEST(MoeTiles, WorkspaceHoldsBothProductsAligned) {
  MoeTilesArgs args;
  args.num_tokens = 3;
  args.top_k = 2;
  args.hidden = 96;
  args.intermediate = 32;
  EXPECT_EQ(moe_tiles_workspace_bytes(args), 512 + 2304);
}

TEST(MoeTiles, BadSizesAreRefusedWithNumbers) {
  MoeTilesArgs args;
  args.num_tokens = 1;
  args.hidden = 33;
  args.intermediate = 32;
  args.num_experts = 4;
  args.top_k = 2;
  EXPECT_EQ(moe_tiles(args, {}).message(),
            "moe_tiles: want hidden and intermediate positive multiples of 32, got 33 and 32");
  args.hidden = 32;
  args.top_k = 5;
  EXPECT_EQ(moe_tiles(args, {}).message(), "moe_tiles: want 1 to 4 experts a token, got 5");
  args.top_k = 2;
  EXPECT_EQ(moe_tiles(args, {}).message(), "moe_tiles: want a workspace of 512 bytes, got 0");
}

TEST(MoeTiles, EveryFormNamesARow) {
  if (moe_tiles_instances().empty()) {
    GTEST_SKIP() << "a build without CUDA";
  }
  for (const MoeTilesForm form : {MoeTilesForm::kStream8, MoeTilesForm::kStream16,
                                  MoeTilesForm::kGrouped48, MoeTilesForm::kGrouped192}) {
    int count = 0;
    for (const auto& row : moe_tiles_instances()) {
      count += std::string(row.info.name) == moe_tiles_form_name(form);
    }
    EXPECT_EQ(count, 1) << moe_tiles_form_name(form);
  }
}

}  // namespace
}  // namespace nibble::kernels
