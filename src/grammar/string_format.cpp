#include "grammar/string_format.h"

#include <utility>

namespace nibble::grammar {
namespace {

#define NIBBLE_DATE                                            \
  "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|" \
  "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define NIBBLE_TIME                                              \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?" \
  "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define NIBBLE_OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define NIBBLE_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define NIBBLE_HOST NIBBLE_LABEL "(?:\\." NIBBLE_LABEL ")*"
#define NIBBLE_URI_CHARACTER "(?:[A-Za-z0-9._~:@!$&'()*+,;=/?-]|%[0-9A-Fa-f]{2})"

// 29 February is left out: whether a year has one is not worth the states.
constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
    {"date", "^" NIBBLE_DATE "$"},
    {"time", "^" NIBBLE_TIME "$"},
    {"date-time", "^" NIBBLE_DATE "T" NIBBLE_TIME "$"},
    {"duration", "^P(?:[0-9]{1,6}W|[0-9]{1,6}D(?:T[0-9]{1,6}[HMS])?|T[0-9]{1,6}[HMS])$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"ipv4", "^(?:" NIBBLE_OCTET "\\.){3}" NIBBLE_OCTET "$"},
    {"ipv6", "^(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
    {"hostname", "^" NIBBLE_HOST "$"},
    {"email", "^[A-Za-z0-9_+-]+(?:\\.[A-Za-z0-9_+-]+)*@" NIBBLE_HOST "$"},
    {"uri", "^[a-z][a-z0-9+-]*://" NIBBLE_HOST "(?::[0-9]{1,5})?(?:/" NIBBLE_URI_CHARACTER
            "*)?(?:#" NIBBLE_URI_CHARACTER "*)?$"},
};

}  // namespace

std::string_view format_pattern(std::string_view format) {
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) {
      return pattern;
    }
  }
  return {};
}

std::string supported_formats() {
  std::string names;
  for (const auto& [name, pattern] : kFormats) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

}  // namespace nibble::grammar
