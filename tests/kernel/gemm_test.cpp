#include "kernels/gemm/gemm.h"

#include <fmt/format.h>

#include "kernel/gpu.h"
#include "support/counter_rng.h"
#include "support/tolerance.h"

namespace nibble::kernels {
namespace {

using testing_support::CounterRng;
using testing_support::ErrorBound;
using GemmOnGpu = GpuTest;

constexpr std::int64_t kExtraColumns = 3;  // of out, beyond the parts
constexpr float kGuard = 12345.0F;

struct GemmShape {
  std::int32_t rows = 0;
  std::int32_t k = 0;
  std::vector<std::int32_t> parts;
};

// Operands on both sides.
class GemmCase {
 public:
  GemmCase(GemmShape shape, DType x_dtype, DType weight_dtype)
      : shape_(std::move(shape)),
        x_dtype_(x_dtype),
        weight_dtype_(weight_dtype),
        x_(CounterRng(1).normals(std::int64_t{shape_.rows} * shape_.k), x_dtype),
        x_gpu_(x_.data(), std::int64_t{shape_.rows} * shape_.k * dtype_bits(x_dtype) / 8) {
    for (std::size_t i = 0; i < shape_.parts.size(); ++i) {
      const std::int64_t n = shape_.parts[i];
      weights_.emplace_back(CounterRng(100 + i).normals(n * shape_.k, 0.25F), weight_dtype);
      weights_gpu_.push_back(std::make_unique<OnGpu>(weights_.back().data(),
                                                     n * shape_.k * dtype_bits(weight_dtype) / 8));
      biases_.push_back(CounterRng(200 + i).normals(n));
      biases_gpu_.push_back(std::make_unique<OnGpu>(biases_.back()));
      num_columns_ += n;
    }
    start_ = CounterRng(300).normals(shape_.rows * stride());
    for (std::size_t i = 0; i < start_.size(); ++i) {
      start_[i] = static_cast<std::int64_t>(i) % stride() >= num_columns_ ? kGuard : start_[i];
    }
    out_ = std::make_unique<OnGpu>(start_);
  }

  std::int64_t stride() const { return num_columns_ + kExtraColumns; }
  OnGpu& out() { return *out_; }

  // With pointers of the GPU; `parts` keeps what the span names.
  GemmArgs args(std::vector<GemmPart>& parts, bool accumulate) {
    parts.clear();
    for (std::size_t i = 0; i < shape_.parts.size(); ++i) {
      parts.push_back({weights_gpu_[i]->data(),
                       i % 2 == 0 ? biases_gpu_[i]->data<float>() : nullptr, shape_.parts[i]});
    }
    return with(x_gpu_.data(), out_->data<float>(), parts, accumulate);
  }

  std::vector<float> want(bool accumulate) const {
    std::vector<float> out = start_;
    std::vector<GemmPart> parts;
    for (std::size_t i = 0; i < shape_.parts.size(); ++i) {
      parts.push_back(
          {weights_[i].data(), i % 2 == 0 ? biases_[i].data() : nullptr, shape_.parts[i]});
    }
    EXPECT_TRUE(gemm_ref(with(x_.data(), out.data(), parts, accumulate)).ok());
    return out;
  }

  // fp32 sum of k products, a bias and the former value; then both sides round to float32.
  std::vector<ErrorBound> bounds(bool accumulate) const {
    std::vector<ErrorBound> out(start_.size());
    for (std::int32_t row = 0; row < shape_.rows; ++row) {
      std::size_t column = static_cast<std::size_t>(row * stride());
      for (std::size_t p = 0; p < weights_.size(); ++p) {
        for (std::int32_t n = 0; n < shape_.parts[p]; ++n, ++column) {
          double magnitude = accumulate ? std::abs(start_[column]) : 0.0;
          magnitude += p % 2 == 0 ? std::abs(biases_[p][n]) : 0.0;
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

  void reset() { out_->set(start_.data()); }

 private:
  GemmArgs with(const void* x, float* out, std::span<const GemmPart> parts, bool accumulate) const {
    return {.x = x,
            .out = out,
            .parts = parts,
            .rows = shape_.rows,
            .k = shape_.k,
            .out_stride = stride(),
            .x_dtype = x_dtype_,
            .weight_dtype = weight_dtype_,
            .accumulate = accumulate};
  }

  GemmShape shape_;
  DType x_dtype_;
  DType weight_dtype_;
  Stored x_;
  OnGpu x_gpu_;
  std::vector<Stored> weights_;
  std::vector<std::unique_ptr<OnGpu>> weights_gpu_;
  std::vector<std::vector<float>> biases_;
  std::vector<std::unique_ptr<OnGpu>> biases_gpu_;
  std::vector<float> start_;
  std::unique_ptr<OnGpu> out_;
  std::int64_t num_columns_ = 0;
};

std::vector<GemmShape> edge_shapes() {
  std::vector<GemmShape> shapes;
  for (const std::int32_t k : {1, 7, 8, 24, 32, 40, 56, 64, 72, 248, 256, 264, 320, 1032}) {
    for (const std::int32_t rows : {0, 1, 2, 9}) {
      shapes.push_back({rows, k, {15, 16, 17}});
    }
  }
  for (const std::int32_t rows : {7, 8, 16, 17, 32, 33, 63, 64, 65, 127, 128, 129, 300}) {
    shapes.push_back({rows, 72, {33, 0, 5}});
    shapes.push_back({rows, 192, {127, 129}});
  }
  shapes.push_back({3, 2880, {64, 16, 16}});
  shapes.push_back({65, 4096, {130}});
  shapes.push_back({257, 2880, {64, 256}});
  return shapes;
}

void expect_product(const Instance<GemmArgs>& row, const GemmShape& shape) {
  for (const DType x_dtype : kActivationDtypes) {
    for (const DType w_dtype : kActivationDtypes) {
      GemmCase input(shape, x_dtype, w_dtype);
      for (const bool accumulate : {false, true}) {
        std::vector<GemmPart> parts;
        const GemmArgs args = input.args(parts, accumulate);
        if (!row.accepts(args)) {
          continue;
        }
        input.reset();
        ASSERT_TRUE(row.run(args, on_gpu()).ok());
        testing_support::expect_close(
            input.out().values<float>(), input.want(accumulate), input.bounds(accumulate),
            fmt::format("x {}, w {}, {} rows, k {}, accumulate {}", dtype_name(x_dtype),
                        dtype_name(w_dtype), shape.rows, shape.k, accumulate));
      }
    }
  }
}

TEST_F(GemmOnGpu, AgreesWithTheReference) {
  for_each_cuda(gemm_instances(), [](const Instance<GemmArgs>& row) {
    for (const GemmShape& shape : edge_shapes()) {
      expect_product(row, shape);
    }
  });
}

// Sizes at which the plan takes each size of tiles, whole ones and cut ones, from the smallest to
// the largest; the bits are those of fewer rows, which take another size.
TEST_F(GemmOnGpu, EveryWidthOfTilesAgreesWithTheReference) {
  for_each_cuda(gemm_instances(), [](const Instance<GemmArgs>& row) {
    for (const auto& [rows, n] : {std::pair{130, 300},
                                  {130, 1500},
                                  {130, 2600},
                                  {520, 2000},
                                  {520, 2600},
                                  {1300, 2000},
                                  {1300, 2600}}) {
      GemmCase input({rows, 72, {n - 31, 31}}, DType::kBF16, DType::kBF16);
      for (const bool accumulate : {true, false}) {
        std::vector<GemmPart> parts;
        GemmArgs args = input.args(parts, accumulate);
        if (!row.accepts(args)) {
          continue;
        }
        input.reset();
        ASSERT_TRUE(row.run(args, on_gpu()).ok());
        const std::vector<float> whole = input.out().values<float>();
        testing_support::expect_close(whole, input.want(accumulate), input.bounds(accumulate),
                                      fmt::format("{} rows, n {}", rows, n));
        input.reset();
        args.rows = 70;
        ASSERT_TRUE(row.run(args, on_gpu()).ok());
        const auto count = static_cast<std::size_t>(70 * args.out_stride);
        const std::vector<float> few = input.out().values<float>();
        EXPECT_TRUE(same_bits(std::span(few).first(count), std::span(whole).first(count)));
      }
    }
  });
}

// Within one kernel: which kernel runs depends on the number of rows.
TEST_F(GemmOnGpu, ARowDoesNotDependOnItsBatch) {
  for_each_cuda(gemm_instances(), [](const Instance<GemmArgs>& row) {
    GemmCase input({32, 320, {48, 33}}, DType::kBF16, DType::kBF16);
    std::vector<GemmPart> parts;
    GemmArgs args = input.args(parts, false);
    ASSERT_TRUE(row.run(args, on_gpu()).ok());
    const std::vector<float> whole = input.out().values<float>();
    for (const std::int32_t batch : {1, 8, 9, 17}) {
      input.reset();
      const GemmArgs all = input.args(parts, false);
      for (std::int32_t first = 0; first < 32; first += batch) {
        args = all;
        args.rows = std::min(batch, 32 - first);
        args.x = element_at(all.x, DType::kBF16, std::int64_t{first} * 320);
        args.out = all.out + first * all.out_stride;
        ASSERT_TRUE(row.run(args, on_gpu()).ok());
      }
      EXPECT_TRUE(same_bits(input.out().values<float>(), whole)) << batch;
    }
  });
}

TEST_F(GemmOnGpu, GivesTheSameBitsEveryTime) {
  for_each_cuda(gemm_instances(), [](const Instance<GemmArgs>& row) {
    for (const std::int32_t rows : {1, 60, 150}) {
      GemmCase input({rows, 576, {320, 64}}, DType::kBF16, DType::kBF16);
      std::vector<GemmPart> parts;
      const GemmArgs args = input.args(parts, false);
      if (row.accepts(args)) {
        expect_same_bits_every_time(input.out(),
                                    [&] { ASSERT_TRUE(row.run(args, on_gpu()).ok()); });
      }
    }
  });
}

}  // namespace
}  // namespace nibble::kernels
