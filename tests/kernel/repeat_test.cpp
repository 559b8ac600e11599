// A thousand runs, one result: families whose own suites have no case for it.
#include <vector>

#include "formats/expert_tiles.h"
#include "kernel/gpu.h"
#include "kernels/convert/gather_rows.h"
#include "kernels/random/random_fill.h"
#include "kernels/random/random_tiles.h"
#include "kernels/rope/rope_store.h"
#include "kernels/route/sort_rows.h"
#include "kernels/sample/pick_ids.h"
#include "support/counter_rng.h"

namespace nibble::kernels {
namespace {

using testing_support::CounterRng;
using RepeatOnGpu = GpuTest;

TEST_F(RepeatOnGpu, GatherRowsGivesTheSameBitsEveryTime) {
  const OnGpu table(CounterRng(1).normals(37 * 2880));
  const OnGpu ids(std::vector<std::int32_t>{36, 0, 5, 5, 37, -1, 3});
  OnGpu out(7 * 2880 * 4);
  for_each_cuda(gather_rows_instances(), [&](const Instance<GatherRowsArgs>& row) {
    expect_same_bits_every_time(out, [&] {
      ASSERT_TRUE(row.run({.table = table.data(),
                           .ids = ids.data<std::int32_t>(),
                           .out = out.data<float>(),
                           .rows = 7,
                           .cols = 2880,
                           .table_rows = 37},
                          on_gpu())
                      .ok());
    });
  });
}

// Looks at queries, keys and their scales; values take the way of keys.
TEST_F(RepeatOnGpu, RopeStoreGivesTheSameBitsEveryTime) {
  constexpr std::int32_t kRows = 9;
  constexpr std::int32_t kWidth = (64 + 2 * 8) * 64;
  constexpr std::int64_t kCacheElems = std::int64_t{4} * 8 * 4 * 64;
  std::vector<float> inv_freq(32);
  yarn_inv_freq({.factor = 32.0}, 64, inv_freq.data());
  const OnGpu qkv(CounterRng(1).normals(kRows * kWidth));
  const OnGpu positions(std::vector<std::int32_t>{0, 1, 500, 4096, 9, 77, 131071, 5, 6});
  const OnGpu slots(std::vector<std::int64_t>{3, 0, 9, 12, -1, 15, 7, 1, 2});
  const OnGpu inv_freq_gpu(inv_freq);
  OnGpu q(std::int64_t{kRows} * 64 * 64 * 2);
  OnGpu k(kCacheElems * 2);
  const OnGpu v(kCacheElems * 2);
  OnGpu k_scales(kCacheElems / 64);
  const OnGpu v_scales(kCacheElems / 64);
  RopeStoreArgs args{.qkv = qkv.data<float>(),
                     .positions = positions.data<std::int32_t>(),
                     .slots = slots.data<std::int64_t>(),
                     .inv_freq = inv_freq_gpu.data<float>(),
                     .q_out = q.data(),
                     .k_cache = k.data(),
                     .v_cache = v.data(),
                     .k_scales = k_scales.data<std::uint8_t>(),
                     .v_scales = v_scales.data<std::uint8_t>(),
                     .rows = kRows,
                     .num_heads = 64,
                     .num_kv_heads = 8,
                     .head_dim = 64,
                     .page_size = 4,
                     .concentration = 1.3465736F,
                     .q_dtype = DType::kBF16};
  for_each_cuda(rope_store_instances(), [&](const Instance<RopeStoreArgs>& row) {
    args.kv_dtype = DType::kBF16;
    args.kv_dtype = row.accepts(args) ? DType::kBF16 : DType::kE4M3;
    ASSERT_TRUE(row.accepts(args));
    for (OnGpu* out : {&q, &k, &k_scales}) {
      expect_same_bits_every_time(*out, [&] { ASSERT_TRUE(row.run(args, on_gpu()).ok()); });
    }
  });
}

TEST_F(RepeatOnGpu, SortRowsGivesTheSameBitsEveryTime) {
  constexpr std::int32_t kTokens = 3000;
  std::vector<std::int32_t> ids(kTokens * 4);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = CounterRng(5).below(i, 128);
  }
  const OnGpu ids_gpu(ids);
  const OnGpu offs(129 * 4);
  OnGpu gather(kTokens * 16);
  OnGpu scatter(kTokens * 16);
  for_each_cuda(sort_rows_instances(), [&](const Instance<SortRowsArgs>& row) {
    for (OnGpu* out : {&gather, &scatter}) {
      expect_same_bits_every_time(*out, [&] {
        ASSERT_TRUE(row.run({.ids = ids_gpu.data<std::int32_t>(),
                             .slice_offs = offs.data<std::int32_t>(),
                             .gather = gather.data<std::int32_t>(),
                             .scatter = scatter.data<std::int32_t>(),
                             .num_tokens = kTokens,
                             .top_k = 4,
                             .num_experts = 128},
                            on_gpu())
                        .ok());
      });
    }
  });
}

TEST_F(RepeatOnGpu, PickIdsGivesTheSameBitsEveryTime) {
  const OnGpu sampled(std::vector<std::int32_t>{70, 71, 72});
  const OnGpu original(std::vector<std::int32_t>{5, -1, -3, 9, -2});
  OnGpu ids(5 * 4);
  for_each_cuda(pick_ids_instances(), [&](const Instance<PickIdsArgs>& row) {
    expect_same_bits_every_time(ids, [&] {
      ASSERT_TRUE(gpu().copy(ids.data(), original.data(), 20, on_gpu().stream).ok());
      ASSERT_TRUE(row.run({.ids = ids.data<std::int32_t>(),
                           .sampled = sampled.data<std::int32_t>(),
                           .count = 5,
                           .num_sampled = 3},
                          on_gpu())
                      .ok());
    });
    EXPECT_EQ(ids.values<std::int32_t>(), (std::vector<std::int32_t>{5, 70, 72, 9, 71}));
  });
}

TEST_F(RepeatOnGpu, RandomWeightsAreTheSameBitsEveryTime) {
  OnGpu bytes((1 << 20) + 6);
  for_each_cuda(random_fill_instances(), [&](const Instance<RandomFillArgs>& row) {
    expect_same_bits_every_time(bytes, [&] {
      ASSERT_TRUE(row.run({.out = bytes.data(),
                           .bytes = bytes.bytes(),
                           .key = 77,
                           .form = RandomForm::kScales,
                           .middle_scale = 119},
                          on_gpu())
                      .ok());
    });
  });
  constexpr std::int32_t kExperts = 3;
  const auto extent =
      formats::expert_tile_extent(formats::LogicalRows(128), formats::LogicalCols(96));
  OnGpu values(kExperts * static_cast<std::int64_t>(extent.value_bytes()));
  OnGpu scales(kExperts * static_cast<std::int64_t>(extent.scale_bytes()));
  const OnGpu factors(kExperts * 4);
  for_each_cuda(random_tiles_instances(), [&](const Instance<RandomTilesArgs>& row) {
    for (OnGpu* out : {&values, &scales}) {
      expect_same_bits_every_time(*out, [&] {
        ASSERT_TRUE(row.run({.values = values.data<std::uint8_t>(),
                             .scales = scales.data<std::uint8_t>(),
                             .factors = factors.data<float>(),
                             .blocks_key = 5,
                             .scales_key = 8,
                             .middle_scale = 118,
                             .num_experts = kExperts,
                             .rows = 128,
                             .cols = 96},
                            on_gpu())
                        .ok());
      });
    }
  });
}

}  // namespace
}  // namespace nibble::kernels
