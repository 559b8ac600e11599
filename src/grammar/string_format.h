// Patterns of the string formats that schemas may ask for.
#pragma once

#include <string>
#include <string_view>

namespace nibble::grammar {

// A regular expression for the format, stricter than its standard where that keeps it short; empty
// if the format is not supported.
std::string_view format_pattern(std::string_view format);
// "date, time, ...", for messages.
std::string supported_formats();

}  // namespace nibble::grammar
