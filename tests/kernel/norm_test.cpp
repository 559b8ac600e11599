#include "kernel/gpu.h"
#include "kernels/norm/rms_norm.h"
#include "support/counter_rng.h"
#include "support/tolerance.h"

namespace nibble::kernels {
namespace {

using testing_support::CounterRng;
using testing_support::ErrorBound;
using testing_support::expect_close;
using NormOnGpu = GpuTest;

struct NormCase {
  NormCase(std::int32_t given_rows, std::int32_t given_cols, DType given_dtype)
      : rows(given_rows),
        cols(given_cols),
        dtype(given_dtype),
        x(CounterRng(1).normals(std::int64_t{rows} * cols)),
        weight(CounterRng(2).normals(cols)),
        x_gpu(x),
        weight_gpu(weight),
        out(std::int64_t{rows} * cols * dtype_bits(dtype) / 8) {}

  RmsNormArgs args() const {
    return {.x = x_gpu.data<float>(),
            .weight = weight_gpu.data<float>(),
            .out = out.data(),
            .rows = rows,
            .cols = cols,
            .eps = 1e-5F,
            .out_dtype = dtype};
  }
  std::vector<float> want() const {
    std::vector<float> exact(x.size());
    RmsNormArgs reference = args();
    reference.x = x.data();
    reference.weight = weight.data();
    reference.out = exact.data();
    reference.out_dtype = DType::kF32;
    EXPECT_TRUE(rms_norm_ref(reference).ok());
    return exact;
  }

  std::int32_t rows;
  std::int32_t cols;
  DType dtype;
  std::vector<float> x;
  std::vector<float> weight;
  OnGpu x_gpu;
  OnGpu weight_gpu;
  OnGpu out;
};

// The mean's relative error halves under the root; then root, division and two products.
std::vector<ErrorBound> bounds(const NormCase& input, std::span<const float> want) {
  std::vector<ErrorBound> out;
  for (const float value : want) {
    const double magnitude = std::abs(double{value});
    const ErrorBound error = testing_support::sum_error(input.cols, magnitude) * 0.5 +
                             testing_support::roundings(6, magnitude);
    out.push_back(testing_support::rounded(input.dtype, value, error));
  }
  return out;
}

TEST_F(NormOnGpu, AgreesWithTheReference) {
  for_each_cuda(rms_norm_instances(), [](const Instance<RmsNormArgs>& row) {
    for (const std::int32_t cols : {8, 16, 320, 1016, 1024, 1032, 2880}) {
      for (const std::int32_t rows : {0, 1, 2, 33}) {
        for (const DType dtype : kActivationDtypes) {
          const NormCase input(rows, cols, dtype);
          ASSERT_TRUE(row.run(input.args(), on_gpu()).ok());
          const std::vector<float> want = input.want();
          expect_close(input.out.floats(dtype), want, bounds(input, want),
                       std::to_string(rows) + " x " + std::to_string(cols));
        }
      }
    }
  });
}

TEST_F(NormOnGpu, MayWorkInPlace) {
  for_each_cuda(rms_norm_instances(), [](const Instance<RmsNormArgs>& row) {
    const NormCase input(3, 2880, DType::kF32);
    RmsNormArgs args = input.args();
    ASSERT_TRUE(row.run(args, on_gpu()).ok());
    const std::vector<float> apart = input.out.values<float>();
    args.out = input.x_gpu.data();
    ASSERT_TRUE(row.run(args, on_gpu()).ok());
    EXPECT_TRUE(same_bits(apart, input.x_gpu.values<float>()));
  });
}

TEST_F(NormOnGpu, GivesTheSameBitsEveryTimeAndInEveryBatch) {
  for_each_cuda(rms_norm_instances(), [](const Instance<RmsNormArgs>& row) {
    NormCase input(5, 2880, DType::kBF16);
    expect_same_bits_every_time(input.out,
                                [&] { ASSERT_TRUE(row.run(input.args(), on_gpu()).ok()); });
    const std::vector<float> whole = input.out.floats(input.dtype);
    RmsNormArgs last = input.args();
    last.x += 4 * 2880;
    last.rows = 1;
    ASSERT_TRUE(row.run(last, on_gpu()).ok());
    const std::vector<float> alone = input.out.floats(input.dtype);
    EXPECT_TRUE(same_bits({whole.data() + std::ptrdiff_t{4} * 2880, 2880}, {alone.data(), 2880}));
  });
}

}  // namespace
}  // namespace nibble::kernels
