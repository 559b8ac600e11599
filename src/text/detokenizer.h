// Token bytes in, valid UTF-8 out, as soon as it is certain.
#pragma once

#include <string>
#include <string_view>

namespace nibble::text {

// Holds back only bytes that may still become one character (at most 3). Invalid sequences become
// U+FFFD, one for each maximal subpart (Unicode 15, section 3.9, as the `utf-8` decoders of WHATWG
// and Python do).
class Utf8Stream {
 public:
  // Appends the completed text to `out`.
  void push(std::string_view bytes, std::string& out);
  // End of the text: what is held back becomes one U+FFFD. Resets.
  void finish(std::string& out);
  bool empty() const { return held_.empty(); }

 private:
  std::string held_;
};

}  // namespace nibble::text
