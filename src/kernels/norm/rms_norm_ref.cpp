#include <cmath>

#include "kernels/common/element.h"
#include "kernels/norm/rms_norm.h"

namespace nibble::kernels {

Status rms_norm_ref(const RmsNormArgs& args) {
  for (std::int32_t row = 0; row < args.rows; ++row) {
    const std::int64_t base = std::int64_t{row} * args.cols;
    double sum_squares = 0.0;
    for (std::int32_t col = 0; col < args.cols; ++col) {
      sum_squares += double{args.x[base + col]} * args.x[base + col];
    }
    const double scale = 1.0 / std::sqrt(sum_squares / args.cols + args.eps);
    for (std::int32_t col = 0; col < args.cols; ++col) {
      const double value = args.x[base + col] * scale * args.weight[col];
      store_element(args.out, args.out_dtype, base + col, static_cast<float>(value));
    }
  }
  return {};
}

}  // namespace nibble::kernels
