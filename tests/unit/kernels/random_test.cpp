// Random weights by place: the generator, every instance, and tiles against rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/common/random_bits.h"
#include "kernels/convert/expert_tiles.h"
#include "kernels/random/random_fill.h"
#include "kernels/random/random_tiles.h"
#include "unit/kernels/kernel_tester.h"

namespace nibble::kernels {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Published first outputs of splitmix64 seeded with 1234567.
TEST(RandomBits, WordsAreThoseOfSplitmix64) {
  std::vector<std::uint64_t> words;
  for (std::uint64_t counter = 1; counter <= 5; ++counter) {
    words.push_back(random_word(1234567, counter));
  }
  EXPECT_THAT(words, ElementsAre(6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
                                 4593380528125082431U, 16408922859458223821U));
}

std::vector<formats::Bf16> numbered_quantiles() {
  std::vector<formats::Bf16> out(kRandomQuantiles);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].bits = static_cast<std::uint16_t>(i * 16 + 5);
  }
  return out;
}

// Byte `at` of a tensor, from the formula in words of the header.
std::uint8_t byte_at(const RandomFillArgs& args, std::uint64_t at) {
  const std::uint64_t word = random_word(args.key, at / 8);
  switch (args.form) {
    case RandomForm::kBytes: return static_cast<std::uint8_t>(word >> (at % 8 * 8));
    case RandomForm::kScales:
      return static_cast<std::uint8_t>(args.middle_scale - 1 +
                                       (word >> (at % 8 * 8) & 0xFFU) * 3 / 256);
    case RandomForm::kBf16: {
      const std::uint16_t bits = args.quantiles[word >> (at % 8 / 2 * 16) & 0xFFFU].bits;
      return static_cast<std::uint8_t>(bits >> (at % 2 * 8));
    }
  }
  return 0;
}

TEST(RandomFill, EveryInstanceGivesTheBytesOfTheirPlacesAndNoMore) {
  const std::vector<formats::Bf16> quantiles = numbered_quantiles();
  for_each_runnable(random_fill_instances(), [&](const Instance<RandomFillArgs>& row) {
    for (const RandomForm form : {RandomForm::kBytes, RandomForm::kBf16, RandomForm::kScales}) {
      for (const std::int64_t bytes : {0, 1, 7, 8, 9, 4096, (3 << 20) + 6}) {
        for (const std::uint64_t first : {0U, 3U}) {
          std::vector<std::uint8_t> out(static_cast<std::size_t>(bytes) + 8, 0xAA);
          const RandomFillArgs args{.out = out.data(),
                                    .bytes = bytes,
                                    .first_word = first,
                                    .key = 77,
                                    .form = form,
                                    .quantiles = quantiles.data(),
                                    .middle_scale = 119};
          ASSERT_TRUE(row.run(args, {&pools()[2]}).ok());
          for (std::size_t i = 0; i < static_cast<std::size_t>(bytes); ++i) {
            ASSERT_EQ(out[i], byte_at(args, first * 8 + i)) << bytes << ' ' << i;
          }
          out.erase(out.begin(), out.begin() + bytes);
          ASSERT_THAT(out, Each(0xAA));
        }
      }
    }
  });
}

TEST(RandomFill, RefusesATableOrMemoryThatIsNotThere) {
  std::uint64_t word = 0;
  const Exec exec{&pools()[0]};
  EXPECT_EQ(random_fill({.out = &word, .bytes = 8, .form = RandomForm::kBf16}, exec).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(random_fill({.bytes = 8}, exec).code(), Code::kInvalidArgument);
  EXPECT_EQ(random_fill({.out = &word, .bytes = -1}, exec).code(), Code::kInvalidArgument);
}

TEST(RandomTiles, HoldTheRowsThatTheSameKeysFill) {
  constexpr std::int32_t kExperts = 3;
  constexpr std::int32_t kRows = 40;
  constexpr std::int32_t kCols = 96;
  constexpr std::int64_t kBlocks = kRows * kCols / 32;
  const auto extent =
      formats::expert_tile_extent(formats::LogicalRows(kRows), formats::LogicalCols(kCols));
  std::vector<std::uint8_t> values(static_cast<std::size_t>(kExperts * extent.value_bytes()), 0xAA);
  std::vector<std::uint8_t> scales(static_cast<std::size_t>(kExperts * extent.scale_bytes()), 0xAA);
  std::vector<float> factors(kExperts);
  ASSERT_TRUE(random_tiles({.values = values.data(),
                            .scales = scales.data(),
                            .factors = factors.data(),
                            .blocks_key = 5,
                            .scales_key = 6,
                            .middle_scale = 118,
                            .num_experts = kExperts,
                            .rows = kRows,
                            .cols = kCols},
                           {&pools()[0]})
                  .ok());
  std::vector<std::uint8_t> blocks(kBlocks * 16);
  std::vector<std::uint8_t> bytes(kBlocks);
  const RandomFillArgs codes{.key = 5};
  const RandomFillArgs exponents{.key = 6, .form = RandomForm::kScales, .middle_scale = 118};
  for (std::int64_t expert = 0; expert < kExperts; ++expert) {
    EXPECT_EQ(factors[static_cast<std::size_t>(expert)], std::ldexp(1.0F, 119 - 128));
    unpack_expert_tiles({.values = values.data() + expert * extent.value_bytes(),
                         .scales = scales.data() + expert * extent.scale_bytes(),
                         .exponent = 119 - 128,
                         .rows = formats::LogicalRows(kRows),
                         .cols = formats::LogicalCols(kCols)},
                        blocks.data(), bytes.data());
    for (std::int64_t i = 0; i < kBlocks * 16; ++i) {
      ASSERT_EQ(blocks[static_cast<std::size_t>(i)],
                byte_at(codes, static_cast<std::uint64_t>(expert * kBlocks * 16 + i)));
    }
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      ASSERT_EQ(bytes[static_cast<std::size_t>(i)],
                byte_at(exponents, static_cast<std::uint64_t>(expert * kBlocks + i)));
    }
  }
}

TEST(RandomTiles, RefusesSizesThatTilesCannotHave) {
  const Exec exec{&pools()[0]};
  for (const RandomTilesArgs& bad :
       {RandomTilesArgs{.middle_scale = 118, .num_experts = 1, .rows = 1, .cols = 48},
        RandomTilesArgs{.middle_scale = 118, .num_experts = 0, .rows = 1, .cols = 32},
        RandomTilesArgs{.middle_scale = 118, .num_experts = 1, .rows = 0, .cols = 32},
        RandomTilesArgs{.middle_scale = 1, .num_experts = 1, .rows = 1, .cols = 32},
        RandomTilesArgs{.middle_scale = 254, .num_experts = 1, .rows = 1, .cols = 32}}) {
    EXPECT_EQ(random_tiles(bad, exec).code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace nibble::kernels
