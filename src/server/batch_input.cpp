#include "server/batch_input.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/error.h"

namespace nibble::server {

Result<BatchInput> BatchInput::open(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return error(Code::kNotFound, "{}: no such file", path);
  }
  if (!std::filesystem::is_regular_file(path, ignored)) {
    return error(Code::kInvalidArgument, "{}: want a file, found a folder or a pipe", path);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return error(Code::kInternal, "{}: cannot be read", path);
  }
  return BatchInput(std::move(file));
}

std::optional<BatchLine> BatchInput::next() {
  std::string text;
  do {
    if (!std::getline(file_, text)) {
      return std::nullopt;
    }
    ++number_;
  } while (text.find_first_not_of(" \t\r") == std::string::npos);
  BatchLine line = read_batch_line(text, number_);
  if (!line.custom_id.empty() && !ids_.insert(line.custom_id).second) {
    line.fault = bad_request(
        "custom_id", fmt::format("custom_id: want one that no earlier line has, found '{}' again",
                                 line.custom_id.substr(0, 100)));
    line.custom_id.clear();
  }
  return line;
}

void BatchInput::rewind() {
  file_.clear();
  file_.seekg(0);
  number_ = 0;
  ids_.clear();
}

}  // namespace nibble::server
