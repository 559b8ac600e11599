// rms_norm() on the workers of a pool, in vectors; a row is done by one worker.
#pragma once

#include "kernels/norm/rms_norm.h"

namespace nibble::kernels {

Status rms_norm_cpu(const RmsNormArgs& args, const Exec& exec);

}  // namespace nibble::kernels
