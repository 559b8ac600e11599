// Lines typed by a person.
#pragma once

#include <memory>
#include <string>

namespace nibble::cli {

class LineReader {
 public:
  enum class Event { kLine, kInterrupted, kEnd };

  virtual ~LineReader() = default;
  // Shows `prompt` and waits for a line (without its newline). Ctrl-C is kInterrupted and discards
  // what was typed, Ctrl-D on an empty line is kEnd.
  virtual Event read(const std::string& prompt, std::string& line) = 0;
};

// Editing, history and UTF-8 through libedit, on standard input and output. `history_file` is read
// now and written at the end; empty: history lives as long as the reader.
std::unique_ptr<LineReader> make_line_editor(const std::string& history_file);

}  // namespace nibble::cli
