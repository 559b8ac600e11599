// Events of a stream in which one text alone changes from token to token: written as JSON once,
// then copied around the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/json.h"

namespace nibble::server {

class TextEvent {
 public:
  // Stands in the pattern wherever the text belongs. No string of a client's gets into one.
  static constexpr const char* kText = "\x01text\x01";

  TextEvent() = default;
  explicit TextEvent(const Json& pattern);

  bool is_made() const { return !parts_.empty(); }
  // The same bytes as append_event of the pattern with `text` in it.
  void append(std::string_view text, std::string& out) const;

 private:
  std::vector<std::string> parts_;  // what stands before, between and behind
};

// As dump of a string, at the end of `out`.
void append_json_string(std::string_view text, std::string& out);

}  // namespace nibble::server
