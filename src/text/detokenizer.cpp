#include "text/detokenizer.h"

#include "text/utf8.h"

namespace nibble::text {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Appends all that is certain and returns the length of the tail that is not.
std::size_t decode(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t valid = utf8_valid_prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) {
      break;
    }
    const Utf8Step fault = utf8_step(bytes);
    if (fault.kind == Utf8Kind::kIncomplete) {
      return bytes.size();
    }
    out.append(kReplacement);
    bytes.remove_prefix(fault.length);
  }
  return 0;
}

}  // namespace

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  if (held_.empty()) {
    held_.assign(bytes.substr(bytes.size() - decode(bytes, out)));
    return;
  }
  held_.append(bytes);
  held_.erase(0, held_.size() - decode(held_, out));
}

void Utf8Stream::finish(std::string& out) {
  if (!held_.empty()) {
    out.append(kReplacement);
    held_.clear();
  }
}

}  // namespace nibble::text
