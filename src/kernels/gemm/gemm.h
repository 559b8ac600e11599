// Dense product with bias. The weight may come in several row blocks (q, k, v), whose outputs stand
// side by side:
//
//   y[r, n] = sum_k x[r, k] * w[n, k] + bias[n]        out[r, n] = y[r, n]  or  out[r, n] + y[r, n]
//
// Accumulation is fp32 in an order fixed by `k` alone: a row's bits depend neither on the other
// rows nor on the number of workers.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/dtype.h"
#include "tensor/exec.h"

namespace nibble::kernels {

struct GemmPart {
  const void* weight = nullptr;  // [n, k] row-major, weight_dtype
  const float* bias = nullptr;   // [n] or null
  std::int32_t n = 0;
};

struct GemmArgs {
  const void* x = nullptr;  // [rows, k] x_dtype
  float* out = nullptr;     // [rows, out_stride]; columns of the parts in order from 0
  std::span<const GemmPart> parts;
  std::int32_t rows = 0;
  std::int32_t k = 0;                 // any; rows of `weight` are contiguous
  std::int64_t out_stride = 0;        // >= sum of n
  DType x_dtype = DType::kF32;        // kF32 or kBF16
  DType weight_dtype = DType::kBF16;  // kBF16 or kF32
  bool accumulate = false;            // add to out (residual)
};

Status gemm(const GemmArgs& args, const Exec& exec);
Status gemm_ref(const GemmArgs& args);
std::int64_t gemm_bytes(const GemmArgs& args);
std::int64_t gemm_flops(const GemmArgs& args);

// Every kernel of this build. Tests and benchmarks walk it.
std::span<const Instance<GemmArgs>> gemm_instances();

}  // namespace nibble::kernels
