#pragma once

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_tile.h"

namespace nibble::kernels {

// Weight rows split over the workers; every other size and dtype as validated.
Status gemm_cpu(const GemmArgs& args, const Exec& exec);
// bf16 on both sides, multiplied as they are.
Status gemm_cpu_avx512bf16(const GemmArgs& args, const Exec& exec);

}  // namespace nibble::kernels
