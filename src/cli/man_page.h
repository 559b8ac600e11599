// The manual page.
#pragma once

#include <string>
#include <vector>

#include "cli/command_tree.h"

namespace nibble::cli {

// nibble(1) in the man macros of troff.
std::string man_page(const std::vector<VerbEntry>& verbs, const std::string& version);

}  // namespace nibble::cli
