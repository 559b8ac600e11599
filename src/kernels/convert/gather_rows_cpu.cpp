#include "kernels/convert/gather_rows_cpu.h"

#include "kernels/common/element.h"
#include "kernels/common/highway_targets.h"
#include "kernels/common/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert/gather_rows_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/common/vector_element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::kernels::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
void copy_rows(const GatherRowsArgs& args, Range rows) {
  const hn::CappedTag<float, 16> d;
  const auto step = static_cast<std::int32_t>(hn::Lanes(d));
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = static_cast<const T*>(args.table) + std::int64_t{args.ids[row]} * args.cols;
    float* to = args.out + row * args.cols;
    std::int32_t col = 0;
    for (; col + step <= args.cols; col += step) {
      hn::StoreU(load_f32(d, from + col), d, to + col);
    }
    for (; col < args.cols; ++col) {
      to[col] = load_element(from, args.dtype, col);
    }
  }
}

void gather_row_range(const GatherRowsArgs& args, Range rows) {
  if (args.dtype == DType::kF32) {
    copy_rows<float>(args, rows);
  } else {
    copy_rows<formats::Bf16>(args, rows);
  }
}

}  // namespace
}  // namespace nibble::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::kernels {

HWY_EXPORT(gather_row_range);

Status gather_rows_cpu(const GatherRowsArgs& args, const Exec& exec) {
  for_rows(exec, args.rows, args.cols, [&](Range rows) {
    HWY_DYNAMIC_DISPATCH(gather_row_range)(args, rows);
  });
  return {};
}

}  // namespace nibble::kernels
#endif  // HWY_ONCE
