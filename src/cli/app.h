// The command line as a whole: parses, runs one verb, reports.
#pragma once

#include <string>
#include <vector>

#include "cli/host.h"

namespace nibble::cli {

// `arguments` without the program's name. Gives the exit code; a failure has put exactly one line
// on the host's `err`. Every flag --some-flag may come from NIBBLE_SOME_FLAG; the command line
// wins.
int run_program(std::vector<std::string> arguments, Host& host);

// Names of the environment variables of all flags, with the verbs' names: for docs and tests.
struct EnvironmentName {
  std::string verb;
  std::string flag;
  std::string variable;
};
std::vector<EnvironmentName> environment_names(Host& host);

}  // namespace nibble::cli
