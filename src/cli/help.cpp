#include "cli/help.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace nibble::cli {
namespace {

constexpr std::size_t kColumn = 34;  // where descriptions begin

// `names` on the left, the lines of `description` on the right.
std::string row(const std::string& names, const std::string& description) {
  std::string text = "  " + names;
  if (text.size() + 2 > kColumn) {
    text += "\n" + std::string(kColumn, ' ');
  } else {
    text.append(kColumn - text.size(), ' ');
  }
  for (const char c : description) {
    text += c;
    if (c == '\n') {
      text.append(kColumn, ' ');
    }
  }
  return text + "\n";
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    if (is_positional) {
      return row(option->get_name(true), option->get_description());
    }
    std::string names = option->get_snames().empty() ? "    " : "-" + option->get_snames().front();
    for (const std::string& name : option->get_lnames()) {
      names += (names == "    " ? "--" : ", --") + name;
    }
    if (option->get_items_expected_max() > 0) {
      names += " " + option->get_type_name();
    }
    return row(names, option->get_description());
  }

  std::string make_description(const CLI::App* app) const override {
    return app->get_description() + "\n\n";
  }

  std::string make_subcommand(const CLI::App* verb) const override {
    return row(verb->get_name(), verb->get_description());
  }

  // Positionals that are flags too are listed with the flags.
  std::string make_positionals(const CLI::App* app) const override {
    const auto options = app->get_options([](const CLI::Option* option) {
      return option->get_positional() && !option->nonpositional();
    });
    return options.empty() ? "" : make_group("Arguments", true, options) + "\n";
  }

  // CLI11 puts blank lines between groups itself.
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = group + ":\n";
    for (const CLI::Option* option : options) {
      text += make_option(option, is_positional);
    }
    return text;
  }

  std::string make_usage(const CLI::App* app, std::string /*name*/) const override {
    if (app->get_parent() == nullptr) {
      return "Usage: nibble VERB [FLAG...]\n\n";
    }
    std::string text = "Usage: nibble " + app->get_name();
    for (const CLI::Option* option :
         app->get_options([](const CLI::Option* o) { return o->get_positional(); })) {
      const std::string name = option->get_name(true);
      text += option->get_required() ? " " + name : " [" + name + "]";
    }
    return text + " [FLAG...]\n\n";
  }
};

}  // namespace

const std::array<ExitMeaning, 10> kExitMeanings = {{{"0", "done"},
                                                    {"1", "failure"},
                                                    {"2", "usage"},
                                                    {"3", "model missing or invalid"},
                                                    {"4", "does not fit"},
                                                    {"5", "hardware unsupported"},
                                                    {"6", "address in use"},
                                                    {"7", "device lost"},
                                                    {"8", "slower than the baseline"},
                                                    {"130, 143", "interrupted, terminated"}}};

std::string program_footer() {
  std::string text =
      "Examples:\n"
      "  nibble run                                 chat with the demo model\n"
      "  nibble run -p \"Tell me a story.\"           one answer\n"
      "  nibble run openai/gpt-oss-20b -p \"Hello\"   a model of the Hugging Face cache\n"
      "  nibble run --help                          the flags of a verb\n"
      "\n"
      "Exit codes:\n";
  for (const ExitMeaning& exit : kExitMeanings) {
    text += fmt::format("  {:<10}{}\n", exit.codes, exit.meaning);
  }
  text.pop_back();  // CLI11 ends the line
  return text;
}

const char* const kVerbFooter =
    "Every flag has an environment variable: --max-tokens is NIBBLE_MAX_TOKENS. The command line "
    "wins.";

std::shared_ptr<CLI::FormatterBase> make_help_formatter() {
  return std::make_shared<HelpFormatter>();
}

}  // namespace nibble::cli
