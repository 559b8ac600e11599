#include "client/sse.h"

namespace nibble::client {

void SseParser::feed(std::string_view bytes, const OnData& on_data) {
  for (const char c : bytes) {
    const bool is_second_of_pair = is_after_cr_ && c == '\n';
    is_after_cr_ = c == '\r';
    if (is_second_of_pair) {
      continue;
    }
    if (c == '\n' || c == '\r') {
      end_line(on_data);
    } else {
      line_ += c;
    }
  }
}

void SseParser::finish(const OnData& on_data) {
  if (!line_.empty()) {
    end_line(on_data);
  }
  end_line(on_data);
}

void SseParser::end_line(const OnData& on_data) {
  std::string_view line = line_;
  if (is_first_line_ && line.starts_with("\xEF\xBB\xBF")) {
    line.remove_prefix(3);
  }
  is_first_line_ = false;
  if (line.empty()) {
    if (has_data_) {
      on_data(data_);
    }
    data_.clear();
    has_data_ = false;
  } else if (line == "data" || line.starts_with("data:")) {
    line.remove_prefix(line == "data" ? 4 : 5);
    if (line.starts_with(' ')) {
      line.remove_prefix(1);
    }
    data_ += has_data_ ? "\n" : "";
    data_ += line;
    has_data_ = true;
  }
  line_.clear();
}

}  // namespace nibble::client
