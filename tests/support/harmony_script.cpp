#include "support/harmony_script.h"

#include <algorithm>
#include <array>

#include "text/harmony_header.h"

namespace nibble::text {
namespace {

constexpr std::array<std::string_view, 8> kSpellings = {
    "<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
    "<|constrain|>", "<|return|>", "<|call|>",    "<|endoftext|>"};
constexpr std::int32_t kFirstControl = 256;

bool is_same_message(const ParserEvent& a, const ParserEvent& b) {
  return a.kind == b.kind && a.channel == b.channel && a.recipient == b.recipient &&
         a.content_type == b.content_type;
}

std::string problem_of(const ParserEvent& event, const ParserEvent* open) {
  const bool is_begin = event.type == ParserEvent::Type::kBegin;
  if (is_begin != (open == nullptr)) {
    return "events are not balanced";
  }
  if (!is_begin && !is_same_message(*open, event)) {
    return "the message changed between kBegin and kEnd";
  }
  if ((event.kind == PartKind::kToolCall) == event.recipient.empty()) {
    return "a recipient without a call, or a call without a recipient";
  }
  if (!event.recipient.empty() && !is_tool_name(event.recipient)) {
    return "invalid tool name: " + event.recipient;
  }
  if ((event.type == ParserEvent::Type::kText) == event.text.empty()) {
    return "empty text, or text outside kText";
  }
  return is_valid_utf8(event.text) ? "" : "invalid UTF-8";
}

}  // namespace

HarmonyScript::HarmonyScript() {
  for (int byte = 0; byte < 256; ++byte) {
    bytes_.push_back(std::string(1, static_cast<char>(byte)));
  }
  for (std::string_view spelling : kSpellings) {
    bytes_.emplace_back(spelling);
  }
  std::int32_t id = kFirstControl;
  for (std::int32_t* token :
       {&tokens_.start, &tokens_.end, &tokens_.message, &tokens_.channel, &tokens_.constrain,
        &tokens_.return_, &tokens_.call, &tokens_.end_of_text}) {
    *token = id++;
  }
}

HarmonyParser::TokenBytes HarmonyScript::token_bytes() const {
  return [this](std::int32_t id) -> std::string_view {
    const auto index = static_cast<std::size_t>(id);
    return id >= 0 && index < bytes_.size() ? std::string_view(bytes_[index]) : "\xEF\xBF\xBD";
  };
}

std::int32_t HarmonyScript::id_of(std::string_view bytes) {
  const auto it = std::find(bytes_.begin(), bytes_.end(), bytes);
  if (it != bytes_.end()) {
    return static_cast<std::int32_t>(it - bytes_.begin());
  }
  bytes_.emplace_back(bytes);
  return static_cast<std::int32_t>(bytes_.size()) - 1;
}

std::vector<std::int32_t> HarmonyScript::ids_of(std::string_view text, std::size_t chunk) {
  std::vector<std::int32_t> ids;
  while (!text.empty()) {
    std::size_t num_bytes = std::min(chunk, text.size());
    for (std::string_view spelling : kSpellings) {
      if (text.starts_with(spelling)) {
        num_bytes = spelling.size();
        break;
      }
      num_bytes = std::min(num_bytes, text.find(spelling));
    }
    ids.push_back(id_of(text.substr(0, num_bytes)));
    text.remove_prefix(num_bytes);
  }
  return ids;
}

std::vector<ParsedMessage> join_events(const std::vector<ParserEvent>& events,
                                       std::string* problem) {
  std::vector<ParsedMessage> messages;
  const ParserEvent* open = nullptr;
  for (const ParserEvent& event : events) {
    *problem = problem->empty() ? problem_of(event, open) : *problem;
    if (event.type == ParserEvent::Type::kBegin) {
      messages.push_back({event.kind, event.channel, event.recipient, event.content_type, ""});
      open = &event;
    } else if (event.type == ParserEvent::Type::kEnd) {
      open = nullptr;
    } else if (!messages.empty()) {
      messages.back().text += event.text;
    }
  }
  if (open != nullptr && problem->empty()) {
    *problem = "a message is left open";
  }
  return messages;
}

std::string describe(const std::vector<ParsedMessage>& messages) {
  const std::array<std::string, 3> kinds = {"reasoning", "content", "call"};
  const std::array<std::string, 3> channels = {"analysis", "commentary", "final"};
  std::string out;
  for (const ParsedMessage& message : messages) {
    out += kinds[static_cast<std::size_t>(message.kind)] + " " +
           channels[static_cast<std::size_t>(message.channel)];
    out += message.recipient.empty() ? "" : " to=" + message.recipient;
    out += message.content_type.empty() ? "" : " type=" + message.content_type;
    out += ": " + message.text + "\n";
  }
  return out;
}

std::string parse_all(HarmonyParser& parser, const std::vector<std::int32_t>& ids) {
  std::vector<ParserEvent> events;
  for (std::int32_t id : ids) {
    parser.push(id, events);
  }
  parser.finish(events);
  std::string problem;
  const std::string out = describe(join_events(events, &problem));
  return problem.empty() ? out : "PROBLEM: " + problem + "\n" + out;
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
    const unsigned lead = byte(i);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || i + length > text.size()) {
      return false;
    }
    for (std::size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xC0U) != 0x80U) {
        return false;
      }
    }
    const unsigned second = length > 1 ? byte(i + 1) : 0;
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
      return false;
    }
    i += length;
  }
  return true;
}

}  // namespace nibble::text
