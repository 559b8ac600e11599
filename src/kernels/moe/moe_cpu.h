#pragma once

#include "kernels/moe/moe.h"

namespace nibble::kernels {

// The vectors of this processor; weights become float32 in registers.
Status moe_cpu(const MoeArgs& args, const Exec& exec);
// x of bf16; e2m1 becomes bf16 in registers. Both matrices in the same format.
Status moe_cpu_avx512bf16(const MoeArgs& args, const Exec& exec);

// ExpertInputs::kInt8 with both matrices of MXFP4: the same bits from each.
Status moe_cpu_int8(const MoeArgs& args, const Exec& exec);
Status moe_cpu_int8_avx512vnni(const MoeArgs& args, const Exec& exec);

}  // namespace nibble::kernels
