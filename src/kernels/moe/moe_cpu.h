#pragma once

#include "kernels/moe/moe.h"

namespace nibble::kernels {

// The vectors of this processor; weights become float32 in registers.
Status moe_cpu(const MoeArgs& args, const Exec& exec);

}  // namespace nibble::kernels
