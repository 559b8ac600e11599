// gather_rows() on the workers of a pool, in vectors.
#pragma once

#include "kernels/convert/gather_rows.h"

namespace nibble::kernels {

Status gather_rows_cpu(const GatherRowsArgs& args, const Exec& exec);

}  // namespace nibble::kernels
