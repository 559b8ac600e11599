#include "cli/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace nibble::cli {
namespace {

// Values that name something in the file system, by what the help calls them.
bool takes_file(const FlagEntry& flag) {
  constexpr std::array<std::string_view, 6> kNames = {"FILE",  "FILE.svg", "DIR",
                                                      "MODEL", "SRC",      "DST"};
  return std::find(kNames.begin(), kNames.end(), flag.value) != kNames.end();
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

// Between single quotes, for each of the shells.
std::string quoted(const std::string& text) { return "'" + replaced(text, "'", R"('\'')") + "'"; }

std::string one_line(const std::string& text) { return replaced(text, "\n", " "); }

std::string names_of(const std::vector<VerbEntry>& verbs) {
  std::string names;
  for (const VerbEntry& verb : verbs) {
    names += (names.empty() ? "" : " ") + verb.name;
  }
  return names;
}

// One pattern of a bash case: "run --file" | "run -f".
std::string bash_patterns(const VerbEntry& verb, const FlagEntry& flag) {
  std::vector<std::string> patterns;
  for (const std::string& name : flag.names) {
    patterns.push_back(fmt::format("'{} {}'", verb.name, name));
  }
  return fmt::format("{}", fmt::join(patterns, " | "));
}

std::string bash_values(const std::vector<VerbEntry>& verbs) {
  std::string cases;
  for (const VerbEntry& verb : verbs) {
    for (const FlagEntry& flag : verb.flags) {
      if (flag.value.empty()) {
        continue;
      }
      std::string action = "return";  // anything may be typed
      if (!flag.choices.empty()) {
        action = fmt::format("words={}", quoted(fmt::format("{}", fmt::join(flag.choices, " "))));
      } else if (takes_file(flag)) {
        action = "files=1";
      }
      cases += fmt::format("    {}) {} ;;\n", bash_patterns(verb, flag), action);
    }
  }
  return cases;
}

std::string bash_flags(const std::vector<VerbEntry>& verbs) {
  std::string cases;
  for (const VerbEntry& verb : verbs) {
    std::vector<std::string> names;
    for (const FlagEntry& flag : verb.flags) {
      names.insert(names.end(), flag.names.begin(), flag.names.end());
    }
    cases += fmt::format("        {}) words={} ;;\n", verb.name,
                         quoted(fmt::format("{}", fmt::join(names, " "))));
  }
  return cases;
}

std::string zsh_value(const FlagEntry& flag) {
  if (flag.value.empty()) {
    return "";
  }
  const std::string action = !flag.choices.empty()
                                 ? fmt::format("({})", fmt::join(flag.choices, " "))
                             : takes_file(flag) ? "_files"
                                                : "";
  return fmt::format(":{}:{}", replaced(flag.value, ":", "\\:"), action);
}

// '(-n --max-tokens)'{-n,--max-tokens}'[description]:N:'
std::string zsh_flag(const FlagEntry& flag) {
  std::string description = one_line(flag.description);
  for (const std::string_view special : {"\\", "[", "]"}) {
    description = replaced(description, special, "\\" + std::string(special));
  }
  const std::string rest = quoted(fmt::format("[{}]{}", description, zsh_value(flag)));
  const std::string before =
      flag.is_repeatable ? quoted("*") : quoted(fmt::format("({})", fmt::join(flag.names, " ")));
  const std::string names = flag.names.size() == 1
                                ? flag.names.front()
                                : fmt::format("{{{}}}", fmt::join(flag.names, ","));
  return fmt::format("        {}{}{} \\\n", before, names, rest);
}

std::string fish_flag(const VerbEntry& verb, const FlagEntry& flag) {
  std::string line =
      fmt::format("complete -c nibble -n '__fish_seen_subcommand_from {}'", verb.name);
  for (const std::string& name : flag.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!flag.value.empty()) {
    line += takes_file(flag) ? " -r -F" : " -x";
  }
  if (!flag.choices.empty()) {
    line += fmt::format(" -a {}", quoted(fmt::format("{}", fmt::join(flag.choices, " "))));
  }
  return line + " -d " + quoted(replaced(one_line(flag.description), "\\", "\\\\")) + "\n";
}

}  // namespace

std::string bash_completion(const std::vector<VerbEntry>& verbs) {
  // "--flag=value" comes as three words.
  return fmt::format(R"(# bash completion for nibble
_nibble() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local verb='' words='' files='' i
  if [[ $current == '=' ]]; then
    current=''
  elif [[ $previous == '=' ]]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${{COMP_WORDS[i]}} != -* ]]; then
      verb=${{COMP_WORDS[i]}}
      break
    fi
  done
  COMPREPLY=()
  case "$verb $previous" in
{}    *)
      case "$verb" in
        '') words='{} help --help --version' ;;
        help) words='{}' ;;
{}      esac
      if [[ -n $verb && $verb != help && $current != -* ]]; then
        words=''
        files=1
      fi
      ;;
  esac
  if [[ -n $files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  fi
}}
complete -F _nibble nibble
)",
                     bash_values(verbs), names_of(verbs), names_of(verbs), bash_flags(verbs));
}

std::string zsh_completion(const std::vector<VerbEntry>& verbs) {
  std::string list;
  std::string cases;
  for (const VerbEntry& verb : verbs) {
    list += fmt::format("    {}\n", quoted(verb.name + ":" + replaced(verb.summary, ":", "\\:")));
    cases += fmt::format("    {})\n      _arguments -s \\\n", verb.name);
    for (const FlagEntry& flag : verb.flags) {
      cases += zsh_flag(flag);
    }
    cases += "        '*:file:_files'\n      ;;\n";
  }
  return fmt::format(R"(#compdef nibble
_nibble() {{
  local -a verbs
  verbs=(
{}  )
  if ((CURRENT == 2)); then
    _describe 'verb' verbs
    compadd -- help --help --version
    return
  fi
  local verb=$words[2]
  shift words
  ((CURRENT--))
  case $verb in
    help) _describe 'verb' verbs ;;
{}  esac
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _nibble "$@"
else
  compdef _nibble nibble
fi
)",
                     list, cases);
}

std::string fish_completion(const std::vector<VerbEntry>& verbs) {
  std::string text = "# fish completion for nibble\n";
  const std::string none =
      fmt::format("complete -c nibble -n 'not __fish_seen_subcommand_from {}'", names_of(verbs));
  for (const VerbEntry& verb : verbs) {
    text += fmt::format("{} -f -a {} -d {}\n", none, verb.name, quoted(verb.summary));
  }
  text += none + " -f -l help -s h -d 'print help'\n" + none +
          " -f -l version -d 'print the version'\n";
  for (const VerbEntry& verb : verbs) {
    for (const FlagEntry& flag : verb.flags) {
      text += fish_flag(verb, flag);
    }
  }
  return text;
}

}  // namespace nibble::cli
