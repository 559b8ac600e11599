#include "kernels/norm/rms_norm_cpu.h"

#include <cmath>

#include "kernels/common/element.h"
#include "kernels/common/highway_targets.h"
#include "kernels/common/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/rms_norm_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/common/vector_element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::kernels::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 8>;  // divides `cols`

// Four sums in turn hide the latency of the adder; they meet in pairs.
float sum_of_squares(const float* x, std::int32_t cols) {
  const Tag d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  std::int64_t col = 0;
  for (; col + 4 * step <= cols; col += 4 * step) {
    const auto x0 = hn::LoadU(d, x + col);
    const auto x1 = hn::LoadU(d, x + col + step);
    const auto x2 = hn::LoadU(d, x + col + 2 * step);
    const auto x3 = hn::LoadU(d, x + col + 3 * step);
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
    sum2 = hn::MulAdd(x2, x2, sum2);
    sum3 = hn::MulAdd(x3, x3, sum3);
  }
  for (; col < cols; col += step) {
    const auto value = hn::LoadU(d, x + col);
    sum0 = hn::MulAdd(value, value, sum0);
  }
  const auto sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <class T>
void norm_rows(const RmsNormArgs& args, Range rows) {
  const Tag d;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const float* x = args.x + row * args.cols;
    T* out = static_cast<T*>(args.out) + row * args.cols;
    const double mean = double{sum_of_squares(x, args.cols)} / args.cols;
    const auto scale = hn::Set(d, static_cast<float>(1.0 / std::sqrt(mean + args.eps)));
    for (std::int32_t col = 0; col < args.cols; col += static_cast<std::int32_t>(hn::Lanes(d))) {
      const auto scaled = hn::Mul(hn::LoadU(d, x + col), scale);
      store_f32(d, hn::Mul(scaled, hn::LoadU(d, args.weight + col)), out + col);
    }
  }
}

void rms_norm_rows(const RmsNormArgs& args, Range rows) {
  if (args.out_dtype == DType::kF32) {
    norm_rows<float>(args, rows);
  } else {
    norm_rows<formats::Bf16>(args, rows);
  }
}

}  // namespace
}  // namespace nibble::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::kernels {

HWY_EXPORT(rms_norm_rows);

Status rms_norm_cpu(const RmsNormArgs& args, const Exec& exec) {
  for_rows(exec, args.rows, args.cols, [&](Range rows) {
    HWY_DYNAMIC_DISPATCH(rms_norm_rows)(args, rows);
  });
  return {};
}

}  // namespace nibble::kernels
#endif  // HWY_ONCE
