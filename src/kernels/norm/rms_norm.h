// RMS normalisation over the last axis:
//
//   out[r, c] = x[r, c] * rsqrt(mean_c(x[r, c]^2) + eps) * weight[c]
//
// Sums are fp32 in an order fixed by `cols`, so a row's result does not depend on the batch. The
// product with the weight is fp32; one rounding to `out_dtype` at the end.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/dtype.h"
#include "tensor/exec.h"

namespace nibble::kernels {

struct RmsNormArgs {
  const float* x = nullptr;       // [rows, cols], 16-byte aligned
  const float* weight = nullptr;  // [cols]
  void* out = nullptr;            // [rows, cols] out_dtype; may alias x when kF32
  std::int32_t rows = 0;
  std::int32_t cols = 0;  // multiple of 8
  float eps = 0.0F;
  DType out_dtype = DType::kF32;  // kF32 or kBF16
};

// Checks `args`, runs on the pool of `exec`. Does not allocate.
Status rms_norm(const RmsNormArgs& args, const Exec& exec);

// Scalar, double accumulation.
Status rms_norm_ref(const RmsNormArgs& args);

// Compulsory traffic of one call, for roofline reports.
std::int64_t rms_norm_bytes(const RmsNormArgs& args);

// Every kernel of this build. Tests and benchmarks walk it.
std::span<const Instance<RmsNormArgs>> rms_norm_instances();

}  // namespace nibble::kernels
