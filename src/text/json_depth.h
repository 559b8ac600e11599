// How deep JSON is nested, seen before it is parsed: recursion over hostile depth is refused.
#pragma once

#include <string_view>

namespace nibble::text {

// Counts brackets outside strings; `json` may be anything.
bool is_nested_deeper(std::string_view json, int levels);

}  // namespace nibble::text
