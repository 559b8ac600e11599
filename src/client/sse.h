// Server-sent events, from bytes in pieces of any size.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace nibble::client {

// Lines end with LF, CR or CRLF; an empty line ends an event; several `data` lines of one event are
// joined with LF. Comments, other fields, events without data and a byte order mark are passed
// over.
class SseParser {
 public:
  using OnData = std::function<void(std::string_view data)>;

  // Calls `on_data` for each event that is complete by now.
  void feed(std::string_view bytes, const OnData& on_data);
  // The stream has ended: an event whose last line lacks its end counts, too.
  void finish(const OnData& on_data);

 private:
  void end_line(const OnData& on_data);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool is_after_cr_ = false;
  bool is_first_line_ = true;
};

}  // namespace nibble::client
