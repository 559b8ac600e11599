#include "kernels/gemm/gemm.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

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

constexpr float kGuard = 12345.0F;
constexpr std::int64_t kExtraColumns = 3;  // of out, beyond the parts

struct GemmShape {
  std::int32_t rows = 0;
  std::int32_t k = 0;
  std::vector<std::int32_t> parts;
};

// Operands of one product. `args()` points into them.
class GemmCase {
 public:
  GemmCase(GemmShape shape, DType x_dtype, DType weight_dtype, std::uint64_t seed = 1)
      : shape_(std::move(shape)),
        x_dtype_(x_dtype),
        weight_dtype_(weight_dtype),
        x_(CounterRng(seed).normals(std::int64_t{shape_.rows} * shape_.k), x_dtype) {
    for (const std::int32_t n : shape_.parts) {
      const CounterRng rng(seed + 100 + parts_.size());
      weights_.emplace_back(rng.normals(std::int64_t{n} * shape_.k, 0.25F), weight_dtype);
      biases_.push_back(CounterRng(seed + 200).normals(n));
      parts_.push_back({nullptr, nullptr, n});
      num_columns_ += n;
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {  // every second part has no bias
      parts_[i] = {weights_[i].data(), i % 2 == 0 ? biases_[i].data() : nullptr, parts_[i].n};
    }
    start_ = CounterRng(seed + 300).normals(shape_.rows * stride());
  }

  std::int64_t stride() const { return num_columns_ + kExtraColumns; }
  Stored& x() { return x_; }

  GemmArgs args(std::vector<float>& out, bool accumulate) const {
    out = start_;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(out.size()); ++i) {
      const bool is_guard = i % stride() >= num_columns_;
      out[i] = is_guard ? kGuard : accumulate ? out[i] : NAN;
    }
    GemmArgs args;
    args.x = x_.data();
    args.out = out.data();
    args.parts = parts_;
    args.rows = shape_.rows;
    args.k = shape_.k;
    args.out_stride = stride();
    args.x_dtype = x_dtype_;
    args.weight_dtype = weight_dtype_;
    args.accumulate = accumulate;
    return args;
  }

  // fp32 sum of k products, a bias and the former value; then both sides round to float32.
  std::vector<ErrorBound> bounds(bool accumulate) const {
    std::vector<ErrorBound> out(start_.size());
    for (std::int32_t row = 0; row < shape_.rows; ++row) {
      std::int64_t column = row * stride();
      for (std::size_t p = 0; p < parts_.size(); ++p) {
        for (std::int32_t n = 0; n < parts_[p].n; ++n, ++column) {
          double magnitude = accumulate ? std::abs(start_[column]) : 0.0;
          magnitude += parts_[p].bias == nullptr ? 0.0 : std::abs(parts_[p].bias[n]);
          for (std::int32_t k = 0; k < shape_.k; ++k) {
            magnitude += std::abs(double{x_.at(std::int64_t{row} * shape_.k + k)} *
                                  weights_[p].at(std::int64_t{n} * shape_.k + k));
          }
          out[column] = testing_support::sum_error(shape_.k + 2, magnitude) +
                        testing_support::roundings(1, magnitude);
        }
      }
    }
    return out;
  }

 private:
  GemmShape shape_;
  DType x_dtype_;
  DType weight_dtype_;
  Stored x_;
  std::vector<Stored> weights_;
  std::vector<std::vector<float>> biases_;
  std::vector<GemmPart> parts_;
  std::vector<float> start_;
  std::int64_t num_columns_ = 0;
};

std::vector<GemmShape> edge_shapes() {
  std::vector<GemmShape> shapes;
  for (const std::int32_t k : {1, 3, 7, 8, 9, 32, 33, 64, 96, 320, 2880}) {
    for (const std::int32_t rows : {0, 1, 2, 5}) {
      shapes.push_back({rows, k, {4, 1, 3}});
    }
  }
  for (const std::int32_t rows : {3, 4, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33}) {
    shapes.push_back({rows, 96, {33}});
    shapes.push_back({rows, 41, {16, 5, 7}});
  }
  for (const std::int32_t rows : {511, 512, 513, 1025}) {
    shapes.push_back({rows, 64, {5}});
  }
  shapes.push_back({65'537, 3, {1}});
  // Inputs are taken as many at once as fit half a mebibyte: 42 float32 rows here, 6 there.
  shapes.push_back({43, 2880, {1}});
  shapes.push_back({7, 21'888, {1}});
  shapes.push_back({2, 64, {0, 3}});  // a part without rows
  shapes.push_back({1, 2880, {257}});
  shapes.push_back({17, 320, {129, 64}});
  shapes.push_back({13, 2085, {9}});  // more columns than are taken at a time
  shapes.push_back({97, 64, {5}});    // more inputs
  return shapes;
}

TEST(Gemm, ReferenceAgreesWithNumpy) {
  const GoldenArrays golden("gemm");
  const std::int32_t rows = golden.size(0);
  const std::int32_t k = golden.size(1);
  const auto bias = golden.get("bias");
  for (const DType x_dtype : kActivationDtypes) {
    for (const DType w_dtype : kActivationDtypes) {
      const Stored x(golden.get("x"), x_dtype);
      const Stored w(golden.get("w"), w_dtype);
      std::vector<GemmPart> parts;
      std::int32_t n = 0;
      for (std::size_t p = 2; p < 5; ++p) {
        parts.push_back(
            {element_at(w.data(), w_dtype, std::int64_t{n} * k), &bias[n], golden.size(p)});
        n += golden.size(p);
      }
      std::vector<float> out(static_cast<std::size_t>(rows) * n, NAN);
      GemmArgs args{x.data(), out.data(), parts, rows, k, n, x_dtype, w_dtype, false};
      ASSERT_TRUE(gemm_ref(args).ok());
      EXPECT_THAT(out, ::testing::Pointwise(::testing::Eq(), golden.get("out")));
      args.accumulate = true;
      ASSERT_TRUE(gemm_ref(args).ok());
      for (std::size_t i = 0; i < out.size(); ++i) {
        EXPECT_EQ(out[i], 2.0F * golden.get("out")[i]);
      }
    }
  }
}

void check_against_reference(const Instance<GemmArgs>& row, const GemmShape& shape) {
  for (const DType x_dtype : kActivationDtypes) {
    for (const DType w_dtype : kActivationDtypes) {
      const GemmCase input(shape, x_dtype, w_dtype);
      for (const bool accumulate : {false, true}) {
        std::vector<float> want;
        std::vector<float> have;
        const GemmArgs reference = input.args(want, accumulate);
        const GemmArgs args = input.args(have, accumulate);
        if (!row.accepts(args)) {
          continue;
        }
        ASSERT_TRUE(gemm_ref(reference).ok());
        ASSERT_TRUE(row.run(args, {&pools()[1], nullptr}).ok());
        expect_close(have, want, input.bounds(accumulate),
                     fmt::format("x {}, w {}, {} rows, k {}, accumulate {}", dtype_name(x_dtype),
                                 dtype_name(w_dtype), shape.rows, shape.k, accumulate));
      }
    }
  }
}

TEST(Gemm, InstancesAgreeWithTheReference) {
  for_each_runnable(gemm_instances(), [](const Instance<GemmArgs>& row) {
    for (const GemmShape& shape : edge_shapes()) {
      check_against_reference(row, shape);
    }
  });
}

TEST(Gemm, ARowDependsNeitherOnItsBatchNorOnTheWorkers) {
  for_each_runnable(gemm_instances(), [](const Instance<GemmArgs>& row) {
    for (const DType dtype : kActivationDtypes) {
      for (const std::int32_t k : {41, 96, 320, 1060}) {
        const GemmCase input({33, k, {16, 5, 7}}, dtype, DType::kBF16);
        std::vector<float> whole;
        GemmArgs args = input.args(whole, true);
        if (!row.accepts(args)) {
          continue;
        }
        ASSERT_TRUE(row.run(args, {&pools()[0], nullptr}).ok());
        for (ThreadPool& pool : pools()) {
          for (const std::int32_t batch : {1, 2, 3, 4, 8, 9, 16, 17, 32, 33}) {
            std::vector<float> parts;
            const GemmArgs all = input.args(parts, true);
            for (std::int32_t first = 0; first < 33; first += batch) {
              args = all;
              args.rows = std::min(batch, 33 - first);
              args.x = element_at(all.x, dtype, std::int64_t{first} * k);
              args.out = all.out + first * all.out_stride;
              ASSERT_TRUE(row.run(args, {&pool, nullptr}).ok());
            }
            ASSERT_TRUE(same_bits(parts, whole))
                << "k " << k << ", batches of " << batch << ", " << pool.size() << " workers";
          }
        }
      }
    }
  });
}

TEST(Gemm, NaNAndInfStayInTheirRows) {
  for_each_runnable(gemm_instances(), [](const Instance<GemmArgs>& row) {
    for (const DType dtype : kActivationDtypes) {
      GemmCase input({3, 33, {5}}, dtype, DType::kBF16);
      store_element(input.x().data(), dtype, 33 + 32, NAN);
      store_element(input.x().data(), dtype, std::int64_t{2} * 33, INFINITY);
      std::vector<float> out;
      const GemmArgs args = input.args(out, false);
      if (!row.accepts(args)) {
        continue;
      }
      ASSERT_TRUE(row.run(args, {&pools()[1], nullptr}).ok());
      for (std::int64_t n = 0; n < 5; ++n) {
        EXPECT_TRUE(std::isfinite(out[n]));
        EXPECT_TRUE(std::isnan(out[input.stride() + n]));
        EXPECT_TRUE(std::isinf(out[2 * input.stride() + n]));
      }
    }
  });
}

TEST(Gemm, RefusesWhatItCannotDo) {
  const GemmCase input({2, 8, {4}}, DType::kF32, DType::kBF16);
  std::vector<float> out;
  const GemmArgs good = input.args(out, false);
  const Exec exec{&pools()[0], nullptr};
  EXPECT_TRUE(gemm(good, exec).ok());
  GemmArgs bad = good;
  bad.rows = -1;
  EXPECT_EQ(gemm(bad, exec).code(), Code::kInvalidArgument);
  bad = good;
  bad.k = 0;
  EXPECT_EQ(gemm(bad, exec).code(), Code::kInvalidArgument);
  bad = good;
  bad.out_stride = 3;
  EXPECT_THAT(gemm(bad, exec).message(), HasSubstr("out_stride >= 4"));
  bad = good;
  bad.x_dtype = DType::kE2M1;
  EXPECT_EQ(gemm(bad, exec).code(), Code::kUnsupported);
  bad = good;
  bad.weight_dtype = DType::kF16;
  EXPECT_EQ(gemm(bad, exec).code(), Code::kUnsupported);
}

TEST(Gemm, CountsBytesAndOperations) {
  const GemmCase input({3, 8, {4, 1}}, DType::kF32, DType::kBF16);
  std::vector<float> out;
  EXPECT_EQ(gemm_flops(input.args(out, false)), 2 * 3 * 8 * 5);
  EXPECT_EQ(gemm_bytes(input.args(out, false)), 5 * 8 * 2 + 3 * 8 * 4 + 3 * 5 * 4);
  EXPECT_EQ(gemm_bytes(input.args(out, true)), 5 * 8 * 2 + 3 * 8 * 4 + 3 * 5 * 8);
}

}  // namespace
}  // namespace nibble::kernels
