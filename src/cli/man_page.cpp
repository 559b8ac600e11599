#include "cli/man_page.h"

#include <fmt/format.h>

#include <string_view>

#include "cli/help.h"

namespace nibble::cli {
namespace {

// Text as it is: no letter of it means anything to troff, no line of it is a request.
std::string escaped(std::string_view text) {
  std::string out;
  bool is_at_start = true;
  for (const char c : text) {
    if (is_at_start && (c == '.' || c == '\'')) {
      out += "\\&";
    }
    is_at_start = c == '\n';
    switch (c) {
      case '\\': out += "\\e"; break;
      case '-': out += "\\-"; break;
      case '\'': out += "\\(aq"; break;
      case '`': out += "\\(ga"; break;
      case '^': out += "\\(ha"; break;
      case '~': out += "\\(ti"; break;
      default: out += c;
    }
  }
  return out;
}

std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, ", "));
}

std::string flag_text(const FlagEntry& flag) {
  std::vector<std::string> names;
  for (const std::string& name : flag.names) {
    names.push_back("\\fB" + escaped(name) + "\\fR");
  }
  std::string text = ".TP\n" + joined(names);
  if (!flag.value.empty()) {
    text += " \\fI" + escaped(flag.value) + "\\fR";
  }
  text += "\n" + escaped(flag.description) + "\n";
  if (!flag.choices.empty()) {
    text += ".br\nValues: " + escaped(joined(flag.choices)) + ".\n";
  }
  return text;
}

std::string verb_text(const VerbEntry& verb) {
  std::string usage = "\\fBnibble " + escaped(verb.name) + "\\fR";
  for (const std::string& argument : verb.arguments) {
    usage += " [\\fI" + escaped(argument) + "\\fR]";
  }
  std::string text = fmt::format(".SS {}\n{} [\\fIFLAG\\fR...]\n.PP\n{}\n", escaped(verb.name),
                                 usage, escaped(verb.summary));
  for (const FlagEntry& flag : verb.flags) {
    text += flag_text(flag);
  }
  if (!verb.examples.empty()) {
    text += ".PP\nExamples:\n.PP\n.nf\n" + escaped(verb.examples) + ".fi\n";
  }
  return text;
}

}  // namespace

std::string man_page(const std::vector<VerbEntry>& verbs, const std::string& version) {
  std::string text = fmt::format(
      ".TH NIBBLE 1 \"\" \"nibble {}\" \"User Commands\"\n"
      ".SH NAME\nnibble \\- run mixture\\-of\\-experts language models with 4\\-bit float experts\n"
      ".SH SYNOPSIS\n\\fBnibble\\fR \\fIVERB\\fR [\\fIMODEL\\fR] [\\fIFLAG\\fR...]\n"
      ".SH DESCRIPTION\n"
      "A model is a folder with config.json and safetensors files, or a name in the local Hugging "
      "Face cache.\nWithout one, the demo model is used. Nothing is ever downloaded.\n"
      ".SH VERBS\n",
      escaped(version));
  for (const VerbEntry& verb : verbs) {
    text += verb_text(verb);
  }
  text += ".SH ENVIRONMENT\n" + escaped(kVerbFooter) +
          "\n.TP\n\\fBNIBBLE_DEMO\\fR\nFolder of the demo model.\n"
          ".TP\n\\fBHF_HUB_CACHE\\fR, \\fBHF_HOME\\fR, \\fBXDG_CACHE_HOME\\fR\n"
          "Where the Hugging Face cache is.\n"
          ".SH EXIT STATUS\n.nf\n";
  for (const ExitMeaning& exit : kExitMeanings) {
    text += fmt::format("{:<10}{}\n", exit.codes, escaped(exit.meaning));
  }
  return text + ".fi\n";
}

}  // namespace nibble::cli
