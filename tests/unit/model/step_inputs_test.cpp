#include "model/step_inputs.h"

#include <gmock/gmock.h>

#include <vector>

namespace nibble::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Block {
  explicit Block(const StepLimits& limits) {
    Arena measured;
    (void)StepInputs::lay_out(limits, measured);
    memory = std::vector<std::byte>(static_cast<std::size_t>(measured.bytes()) + Arena::kAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    const std::uintptr_t skip =
        (Arena::kAlignment - address % Arena::kAlignment) % Arena::kAlignment;
    Arena arena(memory.data() + skip);
    inputs = StepInputs::lay_out(limits, arena);
  }
  std::vector<std::byte> memory;
  StepInputs inputs;
};

BatchPlan two_sequences() {
  BatchPlan plan{.token_ids = {7, 8, 9}, .logit_rows = {1, 2}, .page_size = 4};
  plan.sequences.push_back({.first_row = 0, .num_rows = 2, .first_position = 3});
  plan.sequences[0].tables[0] = {.first_page = 0, .pages = {10, 11}};
  plan.sequences[0].tables[1] = {.first_page = 0, .pages = {5, 6}};
  plan.sequences.push_back({.first_row = 2, .num_rows = 1, .first_position = 9});
  plan.sequences[1].tables[0] = {.first_page = 0, .pages = {20, 21, 22}};
  plan.sequences[1].tables[1] = {.first_page = 2, .pages = {2}};
  return plan;
}

TEST(StepInputs, PlaceRowsAndAddressPageTablesWhereKernelsReadThem) {
  const StepLimits limits = step_limits(3, 2, 12, 4);
  const Block host(limits);
  const Block seen(limits);
  const Result<StepSizes> sizes = fill_step(two_sequences(), limits, host.inputs, seen.inputs);
  ASSERT_TRUE(sizes.has_value());
  EXPECT_EQ(sizes->sequences, 2);
  const StepInputs& in = host.inputs;
  EXPECT_THAT(std::vector(in.token_ids, in.token_ids + 3), ElementsAre(7, 8, 9));
  EXPECT_THAT(std::vector(in.positions, in.positions + 3), ElementsAre(3, 4, 9));
  EXPECT_THAT(std::vector(in.logit_rows, in.logit_rows + 2), ElementsAre(1, 2));
  EXPECT_THAT(std::vector(in.slots[0], in.slots[0] + 3), ElementsAre(43, 44, 89));
  EXPECT_THAT(std::vector(in.slots[1], in.slots[1] + 3), ElementsAre(23, 24, 9));
  EXPECT_THAT(std::vector(in.pages, in.pages + 8), ElementsAre(10, 11, 20, 21, 22, 5, 6, 2));
  EXPECT_EQ(in.sequences[0][1].pages, seen.inputs.pages + 2);
  EXPECT_EQ(in.sequences[1][1].pages, seen.inputs.pages + 7);
  EXPECT_EQ(in.sequences[1][1].first_page, 2);
  EXPECT_EQ(in.sequences[1][1].first_position, 9);
  // All that a device needs, and not the room behind the tables.
  EXPECT_EQ(sizes->used_bytes, reinterpret_cast<const std::byte*>(in.pages + 8) -
                                   reinterpret_cast<const std::byte*>(in.token_ids));
}

TEST(StepInputs, PageTablesThatDoNotFitAreRefused) {
  const Block block(step_limits(3, 2, 12, 4));
  const StepLimits small{.rows = 3, .logit_rows = 2, .pages = 3};
  const Result<StepSizes> sizes = fill_step(two_sequences(), small, block.inputs, block.inputs);
  ASSERT_FALSE(sizes.has_value());
  EXPECT_EQ(sizes.error().code(), Code::kExhausted);
  EXPECT_THAT(sizes.error().message(), HasSubstr("room for 8 pages, found 6"));
}

}  // namespace
}  // namespace nibble::model
