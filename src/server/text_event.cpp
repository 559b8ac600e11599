#include "server/text_event.h"

#include <algorithm>

#include "server/generation_job.h"

namespace nibble::server {
namespace {

// Most tokens: nothing in them is spelled otherwise in JSON.
bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= ' ' && c < '\x7F' && c != '"' && c != '\\'; });
}

}  // namespace

void append_json_string(std::string_view text, std::string& out) {
  if (is_plain(text)) {
    out.append(1, '"').append(text).append(1, '"');
  } else {
    out += dump(Json(text));
  }
}

TextEvent::TextEvent(const Json& pattern) {
  std::string event;
  append_event(pattern, event);
  const std::string hole = dump(Json(kText));
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + hole.size()) {
    end = event.find(hole, begin);
    parts_.push_back(event.substr(begin, end - begin));
  }
}

void TextEvent::append(std::string_view text, std::string& out) const {
  std::string escaped;
  append_json_string(text, escaped);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    out.append(i == 0 ? std::string_view() : escaped).append(parts_[i]);
  }
}

}  // namespace nibble::server
