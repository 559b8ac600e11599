// Flags from a file: `--config FILE`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"

namespace nibble::cli {

// Arguments for the lines of a file. A line is "name: value" or "name = value", the name that of a
// flag without its dashes; quotes around a value are taken away; `#` begins a comment. `true`
// becomes a switch that is set. kInvalidArgument names the line.
Result<std::vector<std::string>> parse_config(std::string_view text);

// For `serve`: puts what the file of `--config FILE`, or of NIBBLE_CONFIG, says between the verb
// and the other arguments, so that these win.
Status expand_config(std::vector<std::string>& arguments);

}  // namespace nibble::cli
