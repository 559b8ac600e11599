// How safetensors spells element types.
#pragma once

#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace nibble::weights {

std::optional<DType> find_dtype(std::string_view spelling);  // "BF16", "F8_E8M0", ...
std::string_view dtype_spelling(DType dtype);

}  // namespace nibble::weights
