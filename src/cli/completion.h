// Completion scripts for shells: verbs, flags, the values of flags that have few, file names.
#pragma once

#include <string>
#include <vector>

#include "cli/command_tree.h"

namespace nibble::cli {

std::string bash_completion(const std::vector<VerbEntry>& verbs);
std::string zsh_completion(const std::vector<VerbEntry>& verbs);
std::string fish_completion(const std::vector<VerbEntry>& verbs);

}  // namespace nibble::cli
