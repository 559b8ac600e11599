#pragma once

#include "kernels/gemm/gemm.h"

namespace nibble::kernels {

// Weight rows split over the workers; every other size and dtype as validated.
Status gemm_cpu(const GemmArgs& args, const Exec& exec);

}  // namespace nibble::kernels
