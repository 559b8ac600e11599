#include "cli/logits_file.h"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace nibble::cli {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

LogitsFile::LogitsFile(std::FILE* file, std::string path, std::int64_t rows, std::int64_t vocab)
    : file_(file), path_(std::move(path)), rows_(rows), vocab_(vocab) {}

LogitsFile::LogitsFile(LogitsFile&& other) noexcept
    : file_(std::exchange(other.file_, nullptr)),
      path_(std::move(other.path_)),
      rows_(other.rows_),
      vocab_(other.vocab_),
      rows_written_(other.rows_written_),
      fault_(other.fault_) {}

LogitsFile::~LogitsFile() {
  if (file_ != nullptr) {
    std::fclose(file_);
    std::remove(partial().c_str());
  }
}

void LogitsFile::keep_fault() {
  if (fault_ == 0) {
    fault_ = errno != 0 ? errno : EIO;
  }
}

Result<LogitsFile> LogitsFile::create(const std::string& path, std::int64_t rows,
                                      std::int64_t vocab) {
  errno = 0;
  LogitsFile result(std::fopen((path + ".partial").c_str(), "wb"), path, rows, vocab);
  if (result.file_ == nullptr) {
    return error(Code::kInternal, "{}: {}", path, std::strerror(errno));
  }
  std::string header =
      fmt::format(R"({{"logits":{{"dtype":"F32","shape":[{},{}],"data_offsets":[0,{}]}}}})", rows,
                  vocab, rows * vocab * static_cast<std::int64_t>(sizeof(float)));
  header.resize((header.size() + 7) / 8 * 8, ' ');  // data begins at a multiple of 8
  const std::uint64_t length = header.size();
  if (std::fwrite(&length, sizeof length, 1, result.file_) != 1 ||
      std::fwrite(header.data(), 1, header.size(), result.file_) != header.size()) {
    result.keep_fault();
  }
  return result;
}

void LogitsFile::append(std::span<const float> row) {
  errno = 0;
  if (std::fwrite(row.data(), sizeof(float), row.size(), file_) != row.size()) {
    keep_fault();
  }
  rows_written_ += row.size() == static_cast<std::size_t>(vocab_) ? 1 : 0;
}

Status LogitsFile::finish() {
  errno = 0;
  if (std::fclose(std::exchange(file_, nullptr)) != 0) {
    keep_fault();
  }
  if (fault_ == 0 && rows_written_ == rows_ && std::rename(partial().c_str(), path_.c_str()) == 0) {
    return {};
  }
  const int rename_fault = errno;
  std::remove(partial().c_str());
  if (fault_ == 0 && rows_written_ != rows_) {
    return error(Code::kInternal, "{}: want {} rows of {} logits, found {}", path_, rows_, vocab_,
                 rows_written_);
  }
  return error(Code::kInternal, "{}: {}", path_,
               std::strerror(fault_ != 0 ? fault_ : rename_fault));
}

}  // namespace nibble::cli
