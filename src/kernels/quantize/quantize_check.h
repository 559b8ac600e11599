// Inside of the family: checks that both directions share.
#pragma once

#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/dtype.h"

namespace nibble::kernels {

Status check_dtype(DType dtype);
Status check_backend(Backend backend);

}  // namespace nibble::kernels
