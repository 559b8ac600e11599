#include <fmt/format.h>
#include <gmock/gmock.h>

#include "kernels/norm/rms_norm.h"
#include "support/counter_rng.h"
#include "support/golden_arrays.h"
#include "support/tolerance.h"
#include "unit/kernels/kernel_tester.h"

namespace nibble::kernels {
namespace {

using ::testing::HasSubstr;
using testing_support::CounterRng;
using testing_support::ErrorBound;
using testing_support::expect_close;
using testing_support::GoldenArrays;
using testing_support::kUnitF32;

struct NormCase {
  NormCase(std::int32_t num_rows, std::int32_t num_cols)
      : rows(num_rows),
        cols(num_cols),
        x(CounterRng(1).normals(std::int64_t{rows} * cols, 3.0F)),
        weight(CounterRng(2).normals(cols)) {}

  RmsNormArgs args(void* out, DType dtype) const {
    return {x.data(), weight.data(), out, rows, cols, 1e-5F, dtype};
  }
  std::vector<float> run_ref() const {
    std::vector<float> out(x.size());
    EXPECT_TRUE(rms_norm_ref(args(out.data(), DType::kF32)).ok());
    return out;
  }

  std::int32_t rows;
  std::int32_t cols;
  std::vector<float> x;
  std::vector<float> weight;
};

// All terms of the sum of squares are positive, so its relative error is that of the summation;
// the root halves it. Then: mean, + eps, root, reciprocal, two products, and what the float32
// reference rounded.
std::vector<ErrorBound> norm_bounds(std::span<const float> want, std::int32_t cols, DType dtype) {
  std::vector<ErrorBound> out;
  for (const float value : want) {
    const double magnitude = std::abs(value);
    const ErrorBound error = testing_support::sum_error(cols, 0.5 * magnitude) +
                             testing_support::roundings(7, magnitude);
    out.push_back(testing_support::rounded(dtype, value, error));
  }
  return out;
}

TEST(RmsNorm, ReferenceAgreesWithNumpy) {
  const GoldenArrays golden("norm");
  const auto x = golden.get("x");
  const auto weight = golden.get("weight");
  for (const DType dtype : kActivationDtypes) {
    Stored out(static_cast<std::int64_t>(x.size()), dtype);
    ASSERT_TRUE(rms_norm_ref({x.data(), weight.data(), out.data(), golden.size(0), golden.size(1),
                              static_cast<float>(golden.number("eps")), dtype})
                    .ok());
    const auto want = golden.get(dtype == DType::kF32 ? "out" : "out_bf16");
    EXPECT_THAT(out.values(), ::testing::Pointwise(::testing::FloatEq(), want));
  }
}

void check_against_reference(const Instance<RmsNormArgs>& row, const NormCase& input) {
  const std::vector<float> want = input.run_ref();
  for (const DType dtype : kActivationDtypes) {
    Stored have(static_cast<std::int64_t>(want.size()), dtype);
    const RmsNormArgs args = input.args(have.data(), dtype);
    if (row.accepts(args)) {
      ASSERT_TRUE(row.run(args, {&pools()[1], nullptr}).ok());
      expect_close(have.values(), want, norm_bounds(want, input.cols, dtype),
                   fmt::format("{} x {} to {}", input.rows, input.cols, dtype_name(dtype)));
    }
  }
}

TEST(RmsNorm, InstancesAgreeWithTheReference) {
  for_each_runnable(rms_norm_instances(), [](const Instance<RmsNormArgs>& row) {
    for (const std::int32_t cols : {8, 16, 24, 32, 64, 96, 104, 320, 2880}) {
      for (const std::int32_t rows : {0, 1, 2, 3, 7, 8, 9, 33}) {
        check_against_reference(row, NormCase(rows, cols));
      }
    }
    check_against_reference(row, NormCase(513, 32));
  });
}

TEST(RmsNorm, ARowDependsNeitherOnItsBatchNorOnTheWorkers) {
  for_each_runnable(rms_norm_instances(), [](const Instance<RmsNormArgs>& row) {
    for (const std::int32_t cols : {8, 104, 2880}) {
      const NormCase input(17, cols);
      std::vector<float> whole(input.x.size(), NAN);
      ASSERT_TRUE(row.run(input.args(whole.data(), DType::kF32), {&pools()[0], nullptr}).ok());
      for (ThreadPool& pool : pools()) {
        for (const std::int32_t batch : {1, 2, 3, 8, 17}) {
          std::vector<float> parts(input.x.size(), NAN);
          for (std::int32_t first = 0; first < 17; first += batch) {
            RmsNormArgs args = input.args(parts.data() + std::int64_t{first} * cols, DType::kF32);
            args.x += std::int64_t{first} * cols;
            args.rows = std::min(batch, 17 - first);
            ASSERT_TRUE(row.run(args, {&pool, nullptr}).ok());
          }
          ASSERT_TRUE(same_bits(parts, whole)) << cols << ' ' << batch << ' ' << pool.size();
        }
      }
    }
  });
}

TEST(RmsNorm, MayWriteOverItsInput) {
  for_each_runnable(rms_norm_instances(), [](const Instance<RmsNormArgs>& row) {
    NormCase input(5, 96);
    std::vector<float> apart(input.x.size(), NAN);
    ASSERT_TRUE(row.run(input.args(apart.data(), DType::kF32), {&pools()[1], nullptr}).ok());
    ASSERT_TRUE(row.run(input.args(input.x.data(), DType::kF32), {&pools()[1], nullptr}).ok());
    EXPECT_TRUE(same_bits(input.x, apart));
  });
}

TEST(RmsNorm, ZeroRowsStayZeroAndNaNStaysInItsRow) {
  for_each_runnable(rms_norm_instances(), [](const Instance<RmsNormArgs>& row) {
    NormCase input(3, 24);
    std::fill_n(input.x.begin(), 24, 0.0F);
    input.x[24 + 23] = NAN;
    std::vector<float> out(input.x.size(), NAN);
    ASSERT_TRUE(row.run(input.args(out.data(), DType::kF32), {&pools()[1], nullptr}).ok());
    for (std::size_t i = 0; i < 24; ++i) {
      EXPECT_EQ(out[i], 0.0F);
      EXPECT_TRUE(std::isnan(out[24 + i]));
      EXPECT_TRUE(std::isfinite(out[48 + i]));
    }
  });
}

TEST(RmsNorm, RefusesWhatItCannotDo) {
  const NormCase input(2, 16);
  std::vector<float> out(input.x.size());
  const Exec exec{&pools()[0], nullptr};
  EXPECT_TRUE(rms_norm(input.args(out.data(), DType::kF32), exec).ok());
  RmsNormArgs bad = input.args(out.data(), DType::kF32);
  bad.cols = 12;
  EXPECT_THAT(rms_norm(bad, exec).message(), HasSubstr("got 2 x 12"));
  bad.cols = 0;
  EXPECT_EQ(rms_norm(bad, exec).code(), Code::kInvalidArgument);
  bad = input.args(out.data(), DType::kF32);
  bad.rows = -1;
  EXPECT_EQ(rms_norm(bad, exec).code(), Code::kInvalidArgument);
  EXPECT_EQ(rms_norm(input.args(out.data(), DType::kF16), exec).code(), Code::kUnsupported);
  EXPECT_EQ(rms_norm_bytes(input.args(out.data(), DType::kBF16)), 2 * 16 * (4 + 2) + 16 * 4);
}

}  // namespace
}  // namespace nibble::kernels
