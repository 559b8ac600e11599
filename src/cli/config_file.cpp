#include "cli/config_file.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace nibble::cli {
namespace {

constexpr std::string_view kVerb = "serve";  // the one with the flag
constexpr std::string_view kFlag = "--config";
constexpr std::string_view kFlagEquals = "--config=";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  const std::size_t end = text.find_last_not_of(" \t\r");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, end - begin + 1);
}

// Up to a `#` that is no part of a word, as in YAML: `#1` within a value stays.
std::string_view without_comment(std::string_view line) {
  for (std::size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    if (at == 0 || line[at - 1] == ' ' || line[at - 1] == '\t') {
      return line.substr(0, at);
    }
  }
  return line;
}

std::string_view unquoted(std::string_view text) {
  const bool is_quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                         text.back() == text.front();
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

Result<std::vector<std::string>> parse_config(std::string_view text) {
  std::vector<std::string> out;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(without_comment(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty()) {
      continue;
    }
    const std::size_t sign = line.find_first_of(":=");
    const std::string_view name = trimmed(line.substr(0, std::min(sign, line.size())));
    if (sign == std::string_view::npos || name.empty() ||
        name.find(' ') != std::string_view::npos || name.front() == '-') {
      return error(Code::kInvalidArgument, "line {}: want name: value, found {} bytes of else",
                   number, line.size());
    }
    const std::string_view value = unquoted(trimmed(line.substr(sign + 1)));
    std::string flag = "--" + std::string(name);
    for (char& c : flag) {
      c = c == '_' ? '-' : c;
    }
    out.push_back(value == "true" ? flag : flag + "=" + std::string(value));
  }
  return out;
}

Status expand_config(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != kVerb) {
    return {};
  }
  const char* variable = std::getenv("NIBBLE_CONFIG");
  std::string path = variable == nullptr ? "" : variable;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kFlag && i + 1 < arguments.size()) {
      path = arguments[i + 1];
    } else if (arguments[i].starts_with(kFlagEquals)) {
      path = arguments[i].substr(kFlagEquals.size());
    }
  }
  if (path.empty()) {
    return {};
  }
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    return error(Code::kInvalidArgument, "--config: cannot read '{}'", path);
  }
  Result<std::vector<std::string>> lines = parse_config(text.str());
  if (!lines) {
    return error(Code::kInvalidArgument, "--config: {}: {}", path, lines.error().message());
  }
  arguments.insert(arguments.begin() + 1, lines->begin(), lines->end());
  return {};
}

}  // namespace nibble::cli
