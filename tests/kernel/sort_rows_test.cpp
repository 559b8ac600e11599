#include "kernels/route/sort_rows.h"

#include "kernel/gpu.h"
#include "support/counter_rng.h"

namespace nibble::kernels {
namespace {

using SortRowsOnGpu = GpuTest;

struct SortCase {
  SortCase(std::int32_t tokens, std::int32_t k, std::int32_t experts, std::int32_t used)
      : ids(static_cast<std::size_t>(tokens) * k) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = experts - 1 - testing_support::CounterRng(5).below(i, used);
    }
    args = {.num_tokens = tokens, .top_k = k, .num_experts = experts};
  }
  std::vector<std::int32_t> ids;
  SortRowsArgs args;
};

void expect_sorted(const Instance<SortRowsArgs>& row, SortCase input) {
  const auto count = static_cast<std::int64_t>(input.ids.size());
  const OnGpu ids(input.ids);
  const OnGpu offs(std::int64_t{4} * (input.args.num_experts + 1));
  const OnGpu gather(4 * count);
  const OnGpu scatter(4 * count);
  SortRowsArgs args = input.args;
  args.ids = ids.data<std::int32_t>();
  args.slice_offs = offs.data<std::int32_t>();
  args.gather = gather.data<std::int32_t>();
  args.scatter = scatter.data<std::int32_t>();
  ASSERT_TRUE(row.run(args, on_gpu()).ok());
  std::vector<std::int32_t> want_offs(static_cast<std::size_t>(args.num_experts) + 1);
  std::vector<std::int32_t> want_gather(input.ids.size());
  std::vector<std::int32_t> want_scatter(input.ids.size());
  args.ids = input.ids.data();
  args.slice_offs = want_offs.data();
  args.gather = want_gather.data();
  args.scatter = want_scatter.data();
  ASSERT_TRUE(sort_rows_ref(args).ok());
  EXPECT_EQ(offs.values<std::int32_t>(), want_offs);
  EXPECT_EQ(gather.values<std::int32_t>(), want_gather);
  EXPECT_EQ(scatter.values<std::int32_t>(), want_scatter);
}

TEST_F(SortRowsOnGpu, EqualsTheReference) {
  for_each_cuda(sort_rows_instances(), [](const Instance<SortRowsArgs>& row) {
    for (const std::int32_t experts : {1, 4, 31, 32, 33, 128, 256}) {
      for (const std::int32_t tokens : {0, 1, 7, 8, 255, 256, 257, 513, 3000}) {
        expect_sorted(row, SortCase(tokens, 4, experts, experts));
        expect_sorted(row, SortCase(tokens, 4, experts, 1));  // all to one
        expect_sorted(row, SortCase(tokens, 1, experts, std::max(1, experts / 2)));
      }
    }
  });
}

}  // namespace
}  // namespace nibble::kernels
