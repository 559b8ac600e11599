// The command line as data, read from CLI11's tree: what completions and the manual are made from.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace nibble::cli {

struct FlagEntry {
  std::vector<std::string> names;  // "-n", "--max-tokens"; none: only a place on the line
  std::string value;               // "N", "FILE"; empty: a switch
  std::vector<std::string> choices;
  bool is_repeatable = false;
  std::string description;
  std::string group;
  std::string variable;  // of the environment; empty: none
};

struct VerbEntry {
  std::string name;
  std::string summary;
  std::vector<std::string> arguments;  // "MODEL", in order
  std::vector<FlagEntry> flags;
  std::string examples;  // lines
};

// Verbs in the order of the help; those without a group are hidden and left out.
std::vector<VerbEntry> command_tree(const CLI::App& app);

}  // namespace nibble::cli
