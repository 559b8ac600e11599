#include "cli/command_tree.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace nibble::cli {
namespace {

// `add_choice` names its validator by the choices.
std::vector<std::string> choices_of(CLI::Option& option) {
  std::vector<std::string> choices;
  const std::string joined = [&] {
    try {
      return option.get_validator(0)->get_name();
    } catch (const CLI::OptionNotFound&) {
      return std::string();
    }
  }();
  for (std::size_t begin = 0; begin < joined.size();) {
    const std::size_t end = std::min(joined.find('|', begin), joined.size());
    choices.push_back(joined.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

FlagEntry flag_of(CLI::Option& option) {
  FlagEntry flag;
  for (const std::string& name : option.get_snames()) {
    flag.names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    flag.names.push_back("--" + name);
  }
  flag.value = option.get_items_expected_max() > 0 ? option.get_type_name() : "";
  flag.choices = choices_of(option);
  flag.is_repeatable = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  flag.description = option.get_description();
  flag.group = option.get_group();
  flag.variable = option.get_envname();
  return flag;
}

VerbEntry verb_of(CLI::App& app) {
  VerbEntry verb{.name = app.get_name(), .summary = app.get_description()};
  for (CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      verb.arguments.push_back(option->get_name(true));
    }
    if (option->nonpositional()) {
      verb.flags.push_back(flag_of(*option));
    }
  }
  // "Examples:\n<lines>\n<what holds for all verbs>"
  const std::string footer = app.get_footer();
  const std::size_t begin = footer.find('\n') + 1;
  const std::size_t end = footer.rfind("\n\n");
  verb.examples = end == std::string::npos ? "" : footer.substr(begin, end + 1 - begin);
  return verb;
}

}  // namespace

std::vector<VerbEntry> command_tree(const CLI::App& app) {
  std::vector<VerbEntry> verbs;
  // CLI11 has no way to walk a tree that may not be changed; nothing is.
  for (CLI::App* verb : const_cast<CLI::App&>(app).get_subcommands({})) {
    if (!verb->get_group().empty()) {
      verbs.push_back(verb_of(*verb));
    }
  }
  return verbs;
}

}  // namespace nibble::cli
