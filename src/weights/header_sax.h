// The JSON part of a safetensors header, read as events: no tree is built, so depth and size of a
// hostile header cost nothing.
#pragma once

#include <string>
#include <string_view>

#include "weights/safetensors.h"

namespace nibble::weights {

// `name` fit for one line of an error: control and non-ASCII bytes escaped, cut at 160 bytes.
std::string printable(std::string_view name);

// Fills `tensors` (in file order) and `metadata`. Every number fits in 63 bits and is not negative;
// every tensor has dtype, shape and data_offsets, once each. Sizes and ranges are not compared.
Result<Header> parse_header_json(const std::string& path, std::string_view text);

}  // namespace nibble::weights
