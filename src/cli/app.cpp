#include "cli/app.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "cli/config_file.h"
#include "cli/help.h"
#include "cli/parse.h"
#include "cli/verbs.h"

#ifndef NIBBLE_VERSION
#error "the build defines NIBBLE_VERSION"
#endif

namespace nibble::cli {
namespace {

constexpr std::array kVerbs = {&add_run,        &add_serve,   &add_batch,    &add_score,
                               &add_tokenize,   &add_bench,   &add_doctor,   &add_inspect,
                               &add_make_model, &add_plan,    &add_quantize, &add_bench_serve,
                               &add_verify,     &add_generate};

// CLI11 takes a short flag to be one letter; these are typed by users of other engines.
struct Rewriting {
  std::string_view typed;
  std::string_view meant;
};
constexpr std::array kRewritings = {
    Rewriting{"-tp", "--tensor-parallel-size"},
    Rewriting{"-pg", "--prompt-gen"},
    Rewriting{"-np", "--parallel"},
    Rewriting{"-ub", "--ubatch-size"},
    Rewriting{"-sys", "--system"},
    Rewriting{"-help", "--help"},
};

void rewrite(std::vector<std::string>& arguments) {
  for (std::string& argument : arguments) {
    for (const auto& [typed, meant] : kRewritings) {
      const bool has_value = argument.starts_with(typed) && argument.size() > typed.size() &&
                             argument[typed.size()] == '=';
      if (argument == typed || has_value) {
        argument.replace(0, typed.size(), meant);
        break;
      }
    }
  }
  if (!arguments.empty() && arguments.front() == "help") {  // `nibble help run`
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
}

std::string variable_of(const CLI::Option& option) {
  std::string name = "NIBBLE_";
  for (const char c : option.get_lnames().front()) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

bool is_flag_of_ours(const CLI::Option* option) {
  return !option->get_lnames().empty() && !option->check_lname("help") &&
         !option->check_lname("version");
}

void build(CLI::App& app, Invocation& invocation) {
  app.name("nibble");
  app.description("nibble runs mixture-of-experts language models with 4-bit float experts");
  app.set_version_flag("--version", "nibble " NIBBLE_VERSION, "print the version and leave");
  app.set_help_flag("-h,--help", "print this help and leave");
  app.require_subcommand(0, 1);
  app.formatter(make_help_formatter());
  app.footer(program_footer());
  for (const auto add : kVerbs) {
    add(app, invocation);
  }
  for (CLI::App* verb : app.get_subcommands({})) {
    for (CLI::Option* option : verb->get_options(is_flag_of_ours)) {
      option->envname(variable_of(*option));
    }
  }
}

const CLI::App& chosen(const CLI::App& app) {
  const std::vector<CLI::App*> verbs = app.get_subcommands();
  return verbs.empty() ? app : *verbs.front();
}

std::vector<std::string> flag_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

std::string with_suggestion(std::string message, const std::string& suggestion) {
  return suggestion.empty() ? message : fmt::format("{}; did you mean '{}'?", message, suggestion);
}

// One argument that nothing takes.
std::string unknown(const CLI::App& app, const std::string& argument) {
  const CLI::App& verb = chosen(app);
  if (argument.starts_with("-") && argument.size() > 1) {
    const std::string name = argument.substr(0, argument.find('='));
    return with_suggestion(fmt::format("unknown flag '{}'", name),
                           name.starts_with("--") ? nearest(name, flag_names(verb)) : "");
  }
  if (&verb != &app) {
    return fmt::format("unexpected argument '{}'; a text of several words needs quotes", argument);
  }
  std::vector<std::string> names;
  for (const CLI::App* known : app.get_subcommands({})) {
    if (!known->get_group().empty()) {  // others are hidden
      names.push_back(known->get_name());
    }
  }
  const std::string suggestion = nearest(argument, names);
  return suggestion.empty()
             ? fmt::format("unknown verb '{}'; the verbs are {}", argument, fmt::join(names, ", "))
             : with_suggestion(fmt::format("unknown verb '{}'", argument), suggestion);
}

// The option that CLI11's message "--name: ..." is about, if it is about one.
const CLI::Option* subject_of(const CLI::App& verb, const std::string& message) {
  const std::string name = message.substr(0, message.find(':'));
  return verb.get_option_no_throw(name);
}

bool is_typed(const CLI::Option& option, const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    const std::string name = argument.substr(0, argument.find('='));
    return option.check_name(name) ||
           (argument.size() > 2 && argument[1] != '-' && option.check_name(argument.substr(0, 2)));
  });
}

std::string explain(const CLI::App& app, const CLI::ParseError& fault,
                    const std::vector<std::string>& arguments) {
  const CLI::App& verb = chosen(app);
  std::string message = fault.what();
  if (fault.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    const std::vector<std::string> extras = app.remaining(true);
    return extras.empty() ? message : unknown(app, extras.front());
  }
  const CLI::Option* option = subject_of(verb, message);
  if (option != nullptr && message.ends_with("missing")) {
    return fmt::format("{} needs a value", message.substr(0, message.find(':')));
  }
  if (option != nullptr && !option->get_envname().empty() && !is_typed(*option, arguments) &&
      std::getenv(option->get_envname().c_str()) != nullptr) {
    return fmt::format("{}{}", option->get_envname(), message.substr(message.find(':')));
  }
  return message;
}

// Exactly one line, whatever the message holds.
void report(std::FILE* err, std::string_view name, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::replace(message.begin(), message.end(), '\r', ' ');
  fmt::print(err, "{}: {}\n", name, message);
  std::fflush(err);
}

// Parses; the outcome is not done when there is nothing to run.
Outcome parse(CLI::App& app, const std::vector<std::string>& arguments, Output& out) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    out.write(app.help());
    return done();
  } catch (const CLI::CallForVersion& version) {
    out.write(std::string(version.what()) + "\n");
    return done();
  } catch (const CLI::ParseError& fault) {
    return wrong_usage(explain(app, fault, arguments));
  }
  if (app.get_subcommands().empty()) {
    out.write(app.help());
    return wrong_usage("want a verb, for example: nibble run");
  }
  return done();
}

}  // namespace

CLI::App& add_verb(CLI::App& app, const VerbText& text) {
  CLI::App& verb = *app.add_subcommand(text.name, text.summary);
  verb.group("Verbs");
  verb.set_help_flag();  // comes last, with the action
  verb.footer(fmt::format("Examples:\n{}\n{}", text.examples, kVerbFooter));
  return verb;
}

void set_action(CLI::App& verb, Invocation& invocation, std::function<Outcome()> action) {
  verb.set_help_flag("-h,--help", "print this help and leave")->group("Other");
  verb.callback([&invocation, action = std::move(action)] { invocation.action = action; });
}

int run_program(std::vector<std::string> arguments, Host& host) {
  rewrite(arguments);
  Invocation invocation{host, {}};
  CLI::App app;
  build(app, invocation);
  const Status expanded = expand_config(arguments);
  Outcome outcome =
      expanded.ok() ? parse(app, arguments, host.out) : failed(expanded, During::kRun);
  if (outcome.is_done() && invocation.action) {
    outcome = invocation.action();
  }
  const Outcome written = host.out.finish();
  if (outcome.is_done()) {
    outcome = written;
  }
  if (!outcome.message.empty()) {
    const CLI::App& verb = chosen(app);
    report(host.err, &verb == &app ? "nibble" : "nibble " + verb.get_name(), outcome.message);
  }
  return static_cast<int>(outcome.exit);
}

std::vector<EnvironmentName> environment_names(Host& host) {
  Invocation invocation{host, {}};
  CLI::App app;
  build(app, invocation);
  std::vector<EnvironmentName> names;
  for (const CLI::App* verb : app.get_subcommands({})) {
    for (const CLI::Option* option : verb->get_options(is_flag_of_ours)) {
      names.push_back(
          {verb->get_name(), "--" + option->get_lnames().front(), option->get_envname()});
    }
  }
  return names;
}

}  // namespace nibble::cli
