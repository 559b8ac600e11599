#include "cli/output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace nibble::cli {

bool Output::remember(bool is_written) {
  if (!is_written && error_ == 0) {
    error_ = errno != 0 ? errno : EIO;
  }
  return error_ == 0;
}

bool Output::write(std::string_view text) {
  errno = 0;
  return is_open() && remember(std::fwrite(text.data(), 1, text.size(), file_) == text.size());
}

bool Output::flush() {
  errno = 0;
  return is_open() && remember(std::fflush(file_) == 0);
}

bool Output::is_abandoned() const { return error_ == EPIPE; }

Outcome Output::finish() {
  if (flush() || is_abandoned()) {
    return done();
  }
  return {Exit::kFailure, fmt::format("standard output: {}", std::strerror(error_))};
}

}  // namespace nibble::cli
