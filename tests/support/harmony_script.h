// A scripted model for parser tests: tokens are any byte strings, no vocabulary file is needed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/harmony_parser.h"

namespace nibble::text {

// Ids 0..255 are single bytes; then the control tokens; then whatever `id_of` was asked for.
class HarmonyScript {
 public:
  HarmonyScript();

  const HarmonyTokens& tokens() const { return tokens_; }
  HarmonyParser::TokenBytes token_bytes() const;
  std::int32_t id_of(std::string_view bytes);
  // Spelled control tokens become control ids; the rest becomes tokens of up to `chunk` bytes.
  std::vector<std::int32_t> ids_of(std::string_view text, std::size_t chunk);
  HarmonyParser parser() const { return {token_bytes(), tokens_}; }

 private:
  std::vector<std::string> bytes_;
  HarmonyTokens tokens_;
};

// A message as the events describe it, with its text joined.
struct ParsedMessage {
  PartKind kind = PartKind::kContent;
  Channel channel = Channel::kFinal;
  std::string recipient;
  std::string content_type;
  std::string text;
  bool operator==(const ParsedMessage&) const = default;
};

// Joins events; `problem` gets a line if they break the contract of ParserEvent.
std::vector<ParsedMessage> join_events(const std::vector<ParserEvent>& events,
                                       std::string* problem);

// "kind channel [to=X] [type=Y]: text", one line for each message.
std::string describe(const std::vector<ParsedMessage>& messages);

// Parses a whole stream and describes it; contract breaches appear in the result.
std::string parse_all(HarmonyParser& parser, const std::vector<std::int32_t>& ids);

bool is_valid_utf8(std::string_view text);

}  // namespace nibble::text
