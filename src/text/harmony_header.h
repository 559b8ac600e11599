// Reads the header of a generated harmony message. Cannot fail: what is no part of the header
// grammar comes back as leftover text. Decision table: docs/formats/harmony.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/harmony_parser.h"

namespace nibble::text {

// Stand for the control tokens in a collected header; neither byte occurs in UTF-8.
inline constexpr char kChannelMark = '\xFF';
inline constexpr char kConstrainMark = '\xFE';

// What closed the header.
enum class HeaderEnd : std::uint8_t {
  kMessage,  // MESSAGE: content follows
  kStop,     // END, RETURN, CALL or START: there was no MESSAGE, the header is all there is
  kCut,      // the stream ended
};

struct HarmonyHeader {
  std::optional<Channel> channel;
  std::string recipient;  // a valid tool name ("functions.f", "python"), or empty
  std::string content_type;
  std::string leftover;  // text for the reader; empty if none or if it is droppable junk
  int repairs = 0;
};

// `text` is valid UTF-8 apart from the marks. `has_role`: START opened the header, so a role word
// is due; false where the prompt already held it.
HarmonyHeader read_header(std::string_view text, bool has_role, HeaderEnd end);

// [A-Za-z0-9_.-]{1,64} after an optional "functions.".
bool is_tool_name(std::string_view name);

}  // namespace nibble::text
