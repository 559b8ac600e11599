#include "kernels/common/element.h"
#include "kernels/gemm/gemm.h"

namespace nibble::kernels {

Status gemm_ref(const GemmArgs& args) {
  for (std::int32_t row = 0; row < args.rows; ++row) {
    float* out = args.out + row * args.out_stride;
    for (const GemmPart& part : args.parts) {
      for (std::int32_t n = 0; n < part.n; ++n) {
        double sum = part.bias == nullptr ? 0.0 : double{part.bias[n]};
        for (std::int32_t k = 0; k < args.k; ++k) {
          const double x = load_element(args.x, args.x_dtype, std::int64_t{row} * args.k + k);
          sum += x * load_element(part.weight, args.weight_dtype, std::int64_t{n} * args.k + k);
        }
        out[n] = static_cast<float>(args.accumulate ? out[n] + sum : sum);
      }
      out += part.n;
    }
  }
  return {};
}

}  // namespace nibble::kernels
