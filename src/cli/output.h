// Standard output with its failures remembered: a reader that has gone away is no error.
#pragma once

#include <cstdio>
#include <string_view>

#include "cli/exit_code.h"

namespace nibble::cli {

class Output {
 public:
  // `file` stays the caller's.
  explicit Output(std::FILE* file, bool is_terminal) : file_(file), is_terminal_(is_terminal) {}

  bool is_terminal() const { return is_terminal_; }
  std::FILE* file() const { return file_; }

  // Both give false once writing has failed; the caller may stop its work.
  bool write(std::string_view text);
  bool flush();
  bool is_open() const { return error_ == 0; }
  // Nobody reads any more: end quietly.
  bool is_abandoned() const;

  // Flushes. Done, also when the reader has gone; exit 1 when the text could not be written.
  Outcome finish();

 private:
  bool remember(bool is_written);

  std::FILE* file_;
  bool is_terminal_;
  int error_ = 0;  // errno of the first failure
};

}  // namespace nibble::cli
