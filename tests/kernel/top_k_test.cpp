#include "kernels/route/top_k.h"

#include <limits>

#include "kernel/gpu.h"
#include "support/counter_rng.h"
#include "support/tolerance.h"

namespace nibble::kernels {
namespace {

using testing_support::CounterRng;
using TopKOnGpu = GpuTest;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::int32_t kNoRow = std::numeric_limits<std::int32_t>::max();

struct TopKCase {
  TopKCase(std::int32_t given_rows, std::int32_t given_experts, std::int32_t given_k)
      : rows(given_rows),
        experts(given_experts),
        k(given_k),
        logits(CounterRng(3).normals(std::int64_t{rows} * experts, 3.0F)) {
    for (std::size_t i = 0; i < logits.size(); ++i) {  // ties: values of half steps
      logits[i] = i % 3 == 0 ? std::round(2 * logits[i]) / 2 : logits[i];
    }
  }

  TopKArgs run(const Instance<TopKArgs>& row, std::int32_t valid) {
    logits_gpu = std::make_unique<OnGpu>(logits);
    ids = std::make_unique<OnGpu>(std::int64_t{4} * rows * k);
    weights = std::make_unique<OnGpu>(std::int64_t{4} * rows * k);
    bad_row = std::make_unique<OnGpu>(std::vector<std::int32_t>{kNoRow});
    const TopKArgs args{.logits = logits_gpu->data<float>(),
                        .ids = ids->data<std::int32_t>(),
                        .weights = weights->data<float>(),
                        .rows = rows,
                        .num_valid_rows = valid,
                        .num_experts = experts,
                        .top_k = k,
                        .bad_row = bad_row->data<std::int32_t>()};
    EXPECT_TRUE(row.run(args, on_gpu()).ok());
    return args;
  }

  std::int32_t rows;
  std::int32_t experts;
  std::int32_t k;
  std::vector<float> logits;
  std::unique_ptr<OnGpu> logits_gpu;
  std::unique_ptr<OnGpu> ids;
  std::unique_ptr<OnGpu> weights;
  std::unique_ptr<OnGpu> bad_row;
};

// Exponentials to two units of differences that err by half a unit of themselves, their sum and a
// division. Logits of deviation 3 lie closer than this:
constexpr double kLargestGap = 40.0;

void expect_routed(TopKCase& input, const Instance<TopKArgs>& row, std::int32_t valid) {
  std::vector<std::int32_t> want_ids(static_cast<std::size_t>(input.rows) * input.k);
  std::vector<float> want(want_ids.size());
  TopKArgs args = input.run(row, valid);
  args.logits = input.logits.data();
  args.ids = want_ids.data();
  args.weights = want.data();
  ASSERT_TRUE(top_k_ref(args).ok());
  ASSERT_EQ(input.ids->values<std::int32_t>(), want_ids) << input.rows << ' ' << input.experts;
  std::vector<testing_support::ErrorBound> bounds;
  for (std::size_t i = 0; i < want.size(); ++i) {
    bounds.push_back(testing_support::roundings(8 + kLargestGap + input.k, want[i]));
  }
  testing_support::expect_close(input.weights->values<float>(), want, bounds, "weights");
  EXPECT_EQ(input.bad_row->values<std::int32_t>()[0], kNoRow);
}

TEST_F(TopKOnGpu, ChoosesAsTheReference) {
  for_each_cuda(top_k_instances(), [](const Instance<TopKArgs>& row) {
    for (const std::int32_t experts : {1, 2, 4, 31, 32, 33, 64, 127, 128, 129, 512}) {
      for (const std::int32_t k : {1, 2, 4, 32}) {
        for (const std::int32_t rows : {0, 1, 3, 4, 5, 130}) {
          if (k <= experts) {
            TopKCase input(rows, experts, k);
            expect_routed(input, row, rows);
            expect_routed(input, row, rows / 2);
          }
        }
      }
    }
  });
}

TEST_F(TopKOnGpu, TakesMinusInfinityLastAndReportsTheFirstBadRow) {
  for_each_cuda(top_k_instances(), [](const Instance<TopKArgs>& row) {
    TopKCase input(6, 8, 4);
    for (std::int32_t i = 2; i < 8; ++i) {
      input.logits[i] = -kInf;  // row 0: two experts with weight, two without
    }
    expect_routed(input, row, 6);
    const auto bad_after = [&](std::size_t at, float value) {
      const float kept = std::exchange(input.logits[at], value);
      (void)input.run(row, 6);
      const std::int32_t found = input.bad_row->values<std::int32_t>()[0];
      for (const std::int32_t id : input.ids->values<std::int32_t>()) {
        EXPECT_TRUE(id >= 0 && id < 8);  // nothing behind may read out of range
      }
      input.logits[at] = kept;
      return found;
    };
    EXPECT_EQ(bad_after(8 * 3 + 1, kInf), 3);
    EXPECT_EQ(bad_after(8 * 4 + 7, std::numeric_limits<float>::quiet_NaN()), 4);
    for (std::int32_t i = 0; i < 2; ++i) {
      input.logits[i] = -kInf;
    }
    EXPECT_EQ(bad_after(8 * 5, kInf), 0);
  });
}

TEST_F(TopKOnGpu, GivesTheSameBitsEveryTime) {
  for_each_cuda(top_k_instances(), [](const Instance<TopKArgs>& row) {
    TopKCase input(130, 128, 4);
    const TopKArgs args = input.run(row, 130);
    expect_same_bits_every_time(*input.weights, [&] { ASSERT_TRUE(row.run(args, on_gpu()).ok()); });
  });
}

}  // namespace
}  // namespace nibble::kernels
