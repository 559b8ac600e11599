// The output of a batch: a file that only grows, a whole line at a time, so that a run that was
// stopped at any moment can be continued.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>

#include "nibble/status.h"
#include "server/batch_line.h"

namespace nibble::server {

class BatchOutput {
 public:
  // Creates the file, or reads what an earlier run wrote. A last line that was cut is removed.
  // kInvalidArgument: it holds something else (then it is left as it is), or another run writes it.
  static Result<BatchOutput> open(const std::string& path);

  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  ~BatchOutput();

  // Whether the line is done: its custom_id is there; for one without, its number as a refused
  // line.
  bool has(const BatchLine& line) const;
  std::int64_t num_lines() const { return num_lines_; }
  std::int64_t num_failures() const { return num_failures_; }

  // In one write. kExhausted: the disk is full.
  Status append(const std::string& line);

 private:
  BatchOutput(std::string path, int file) : path_(std::move(path)), file_(file) {}
  Status read();
  Status keep(const std::string& line);

  std::string path_;
  int file_ = -1;
  std::unordered_set<std::string> done_ids_;
  std::unordered_set<std::int64_t> refused_;  // line numbers
  std::int64_t num_lines_ = 0;
  std::int64_t num_failures_ = 0;
};

}  // namespace nibble::server
