// The input of a batch, line by line, as often as wanted.
#pragma once

#include <fstream>
#include <optional>
#include <string>
#include <unordered_set>

#include "nibble/status.h"
#include "server/batch_line.h"

namespace nibble::server {

class BatchInput {
 public:
  // kNotFound; kInvalidArgument: no regular file, since a pipe cannot be read twice.
  static Result<BatchInput> open(const std::string& path);

  // Nothing at the end. Empty lines are passed over. A custom_id that an earlier line has is a
  // fault, and counts as none.
  std::optional<BatchLine> next();
  void rewind();

 private:
  explicit BatchInput(std::ifstream file) : file_(std::move(file)) {}

  std::ifstream file_;
  std::int64_t number_ = 0;  // of the last line
  std::unordered_set<std::string> ids_;
};

}  // namespace nibble::server
