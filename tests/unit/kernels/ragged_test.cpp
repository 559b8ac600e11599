#include "kernels/route/ragged.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "unit/kernels/route_cases.h"

namespace nibble::kernels {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int32_t>;

// The example that docs/routing.md draws: 4 tokens, the last one padding, 3 experts, top 2.
TEST(Ragged, DrawnExample) {
  const Ints ids = {2, 0, 0, 2, 2, -1, 0, 1};
  const std::vector<float> weights = {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.0F, 0.7F, 0.8F};
  RaggedBuffers have(8, 3);
  ASSERT_TRUE(build_ragged({ids.data(), weights.data(), 4, 3, 2, 3}, have.out()).ok());
  EXPECT_EQ(have.slice_sizes, (Ints{2, 0, 3}));
  EXPECT_EQ(have.slice_offs, (Ints{0, 2, 2, 5}));
  EXPECT_EQ(have.gather, (Ints{1, 2, 0, 3, 4, -1, -1, -1}));
  EXPECT_EQ(have.scatter, (Ints{2, 0, 1, 3, 4, -1, -1, -1}));
  EXPECT_EQ(have.gates, (std::vector<float>{0.2F, 0.3F, 0.1F, 0.4F, 0.5F, 0, 0, 0}));
  ASSERT_EQ(max_blocks(8, 3), 3);
  EXPECT_EQ(Ints(have.block_offs.begin(), have.block_offs.begin() + 4), (Ints{0, 1, 1, 2}));
  EXPECT_EQ(Ints(have.schedule.begin(), have.schedule.begin() + 3), (Ints{0, 2, -1}));
}

TEST(Ragged, BlocksOfOneExpertCountUpInTheHighHalf) {
  const Ints ids(40, 1);
  RaggedBuffers have(40, 2);
  ASSERT_TRUE(build_ragged({ids.data(), nullptr, 40, 40, 1, 2}, have.out()).ok());
  const std::size_t places = have.schedule.size() / 4;
  EXPECT_EQ(Ints(have.schedule.begin(), have.schedule.begin() + places),
            (Ints{1, 1 << 16 | 1, 2 << 16 | 1, -1}));
  EXPECT_EQ(have.schedule[places], 1);
  EXPECT_EQ(have.schedule[places + 1], 1 << 16 | 1);
  EXPECT_EQ(have.schedule[places + 2], -1);
}

// The published table of grid bounds at 16 rows a block (docs/routing.md).
TEST(Ragged, PlacesOfASchedule) {
  EXPECT_EQ(max_blocks(4, 128), 4);
  EXPECT_EQ(max_blocks(128, 128), 128);
  EXPECT_EQ(max_blocks(512, 128), 152);
  EXPECT_EQ(max_blocks(4096, 128), 376);
  EXPECT_EQ(max_blocks(512, 32), 62);
  EXPECT_EQ(max_blocks(0, 32), 0);
  EXPECT_EQ(max_blocks(2, 1), 1);
  EXPECT_EQ(max_blocks(17, 1), 2);
}

TEST(Ragged, EveryExpertCountHoldsEveryTokenCount) {
  for (const std::int32_t experts :
       {1, 3, 5, 31, 32, 33, 127, 128, 255, 256, 257, 384, 1023, 1024, 1025, 32767}) {
    for (const std::int32_t tokens : {0, 1, 7, 8191}) {
      const std::int32_t top_k = std::min(experts, 4);
      Ints ids(static_cast<std::size_t>(tokens) * top_k);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<std::int32_t>(mix(9, 0, i) % static_cast<std::uint64_t>(experts));
      }
      RaggedBuffers have(static_cast<std::int64_t>(ids.size()), experts);
      ASSERT_TRUE(
          build_ragged({ids.data(), nullptr, tokens, tokens, top_k, experts}, have.out()).ok());
      ASSERT_EQ(have.slice_offs[experts], tokens * top_k);
      for (std::size_t flat = 0; flat < ids.size(); ++flat) {
        ASSERT_EQ(have.gather[have.scatter[flat]], static_cast<std::int32_t>(flat));
        ASSERT_GE(have.scatter[flat], have.slice_offs[ids[flat]]);
        ASSERT_LT(have.scatter[flat], have.slice_offs[ids[flat] + 1]);
      }
    }
  }
}

TEST(Ragged, RefusesWhatItCannotDescribe) {
  RaggedBuffers have(4, 3);
  const Ints ids = {0, 1, 3, 0};
  const Status outside = build_ragged({ids.data(), nullptr, 2, 2, 2, 3}, have.out());
  EXPECT_THAT(outside.message(), HasSubstr("id 3 of token 1, slot 0 is outside -1..2"));
  EXPECT_TRUE(build_ragged({ids.data(), nullptr, 2, 1, 2, 3}, have.out()).ok());  // padding
  const std::int32_t small[] = {8};
  EXPECT_THAT(build_ragged({ids.data(), nullptr, 2, 1, 2, 3, small}, have.out()).message(),
              HasSubstr("at least 16 rows, got 8"));
  EXPECT_EQ(build_ragged({ids.data(), nullptr, 1 << 20, 0, 1, 3}, have.out()).code(),
            Code::kUnsupported);
  EXPECT_EQ(build_ragged({nullptr, nullptr, 2, 1, 2, 3}, have.out()).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(build_ragged({ids.data(), nullptr, 2, 1, 2, 32768}, have.out()).code(),
            Code::kInvalidArgument);
}

TEST(Ragged, RemapKeepsTheRowsOfTheSource) {
  const Ints ids = {0, 1, 1, 2, 3, 3, 3};
  RaggedBuffers whole(7, 4);
  ASSERT_TRUE(build_ragged({ids.data(), nullptr, 7, 7, 1, 4}, whole.out()).ok());
  const Ints slice_map = {-1, 1, -1, 0};
  RaggedBuffers part(7, 2);
  ASSERT_TRUE(remap_ragged({whole.out(), slice_map, 2, 7}, part.out()).ok());
  EXPECT_EQ(part.slice_sizes, (Ints{3, 2}));
  EXPECT_EQ(part.slice_offs, (Ints{4, 1, 5}));
  EXPECT_EQ(Ints(part.block_offs.begin(), part.block_offs.begin() + 3), (Ints{0, 1, 2}));
  EXPECT_EQ(Ints(part.schedule.begin(), part.schedule.begin() + 2), (Ints{0, 1}));
  const Ints hole = {-1, 1, -1, -1};
  EXPECT_THAT(remap_ragged({whole.out(), hole, 2, 7}, part.out()).message(),
              HasSubstr("no slice is mapped to 0 of 2"));
  const Ints twice = {1, 1, 0, -1};
  EXPECT_THAT(remap_ragged({whole.out(), twice, 2, 7}, part.out()).message(),
              HasSubstr("two slices are mapped to 1"));
}

}  // namespace
}  // namespace nibble::kernels
