#include <vector>

#include "formats/expert_tiles.h"
#include "kernel/gpu.h"
#include "kernels/random/random_fill.h"
#include "kernels/random/random_tiles.h"

namespace nibble::kernels {
namespace {

using RandomOnGpu = GpuTest;

TEST_F(RandomOnGpu, FillsTheBytesOfTheReference) {
  std::vector<formats::Bf16> quantiles(kRandomQuantiles);
  for (std::size_t i = 0; i < quantiles.size(); ++i) {
    quantiles[i].bits = static_cast<std::uint16_t>(i * 16 + 5);
  }
  for_each_cuda(random_fill_instances(), [&](const Instance<RandomFillArgs>& row) {
    for (const RandomForm form : {RandomForm::kBytes, RandomForm::kBf16, RandomForm::kScales}) {
      for (const std::int64_t bytes : {0, 1, 7, 8, 9, 4096, (9 << 20) + 6}) {
        RandomFillArgs args{.bytes = bytes,
                            .first_word = 3,
                            .key = 77,
                            .form = form,
                            .quantiles = quantiles.data(),
                            .middle_scale = 119};
        std::vector<std::byte> want(static_cast<std::size_t>(bytes));
        args.out = want.data();
        ASSERT_TRUE(random_fill_ref(args).ok());
        const OnGpu out(bytes);
        args.out = out.data();
        ASSERT_TRUE(row.run(args, on_gpu()).ok());
        ASSERT_TRUE(out.get() == want) << bytes;
      }
    }
  });
}

TEST_F(RandomOnGpu, MakesTheTilesOfTheReference) {
  for_each_cuda(random_tiles_instances(), [](const Instance<RandomTilesArgs>& row) {
    for (const auto& [rows, cols] : {std::pair{1, 32}, {40, 96}, {128, 64}, {5760, 2880}}) {
      constexpr std::int32_t kExperts = 3;
      const auto extent =
          formats::expert_tile_extent(formats::LogicalRows(rows), formats::LogicalCols(cols));
      std::vector<std::uint8_t> values(static_cast<std::size_t>(kExperts * extent.value_bytes()));
      std::vector<std::uint8_t> scales(static_cast<std::size_t>(kExperts * extent.scale_bytes()));
      std::vector<float> factors(kExperts);
      RandomTilesArgs args{.values = values.data(),
                           .scales = scales.data(),
                           .factors = factors.data(),
                           .blocks_key = 5,
                           .scales_key = 8,
                           .middle_scale = 118,
                           .num_experts = kExperts,
                           .rows = rows,
                           .cols = cols};
      // Of few blocks none may have the largest scale, by which the reference rebases.
      const bool is_rebased_alike = rows * cols >= 2048;
      ASSERT_TRUE(random_tiles_ref(args).ok());
      const OnGpu values_gpu(static_cast<std::int64_t>(values.size()));
      const OnGpu scales_gpu(static_cast<std::int64_t>(scales.size()));
      const OnGpu factors_gpu(kExperts * 4);
      args.values = values_gpu.data<std::uint8_t>();
      args.scales = scales_gpu.data<std::uint8_t>();
      args.factors = factors_gpu.data<float>();
      ASSERT_TRUE(row.run(args, on_gpu()).ok());
      EXPECT_TRUE(values_gpu.values<std::uint8_t>() == values) << rows;
      if (is_rebased_alike) {
        EXPECT_TRUE(scales_gpu.values<std::uint8_t>() == scales) << rows;
        EXPECT_EQ(factors_gpu.values<float>(), factors);
      }
    }
  });
}

}  // namespace
}  // namespace nibble::kernels
