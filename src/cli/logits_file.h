// Rows of logits on their way into a safetensors file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "nibble/status.h"

namespace nibble::cli {

// One tensor "logits" [rows, vocab] of float32, written row by row into PATH.partial, which
// becomes PATH when `finish` has seen all rows and is removed otherwise.
class LogitsFile {
 public:
  static Result<LogitsFile> create(const std::string& path, std::int64_t rows, std::int64_t vocab);

  LogitsFile(LogitsFile&& other) noexcept;
  LogitsFile& operator=(LogitsFile&&) = delete;
  ~LogitsFile();

  // In order of position. Failures are kept for `finish`.
  void append(std::span<const float> row);
  Status finish();

 private:
  LogitsFile(std::FILE* file, std::string path, std::int64_t rows, std::int64_t vocab);
  std::string partial() const { return path_ + ".partial"; }
  void keep_fault();

  std::FILE* file_;
  std::string path_;
  std::int64_t rows_;
  std::int64_t vocab_;
  std::int64_t rows_written_ = 0;
  int fault_ = 0;
};

}  // namespace nibble::cli
