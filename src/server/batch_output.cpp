#include "server/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace nibble::server {
namespace {

constexpr std::size_t kReadBytes = 1 << 20;
// How every line begins. A file whose only line was cut must begin so, or it is somebody else's.
constexpr std::string_view kBegin = R"({"id":"batch_req_)";

Status system_error(const std::string& path) {
  const int fault = errno;
  const bool is_full = fault == ENOSPC || fault == EDQUOT || fault == EFBIG;
  return error(is_full ? Code::kExhausted : Code::kInternal, "{}: {}", path, std::strerror(fault));
}

bool may_be_cut_line(std::string_view text) {
  const std::size_t known = std::min(text.size(), kBegin.size());
  return text.substr(0, known) == kBegin.substr(0, known);
}

}  // namespace

Result<BatchOutput> BatchOutput::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) {
    return system_error(path);
  }
  BatchOutput out(path, file);
  struct stat about {};
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
    return error(Code::kInvalidArgument, "{}: want a file, found a device or a pipe", path);
  }
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    return error(Code::kInvalidArgument, "{}: another run writes it", path);
  }
  NIBBLE_RETURN_IF_ERROR(out.read());
  return out;
}

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      done_ids_(std::move(other.done_ids_)),
      refused_(std::move(other.refused_)),
      num_lines_(other.num_lines_),
      num_failures_(other.num_failures_) {}

BatchOutput::~BatchOutput() {
  if (file_ >= 0) {
    ::close(file_);
  }
}

Status BatchOutput::read() {
  std::string line;  // what of the last one is there
  std::int64_t whole_bytes = 0;
  std::string bytes(kReadBytes, '\0');
  while (true) {
    const ssize_t count = ::read(file_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return system_error(path_);
    }
    if (count == 0) {
      break;
    }
    std::string_view rest(bytes.data(), static_cast<std::size_t>(count));
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      line.append(rest.substr(0, end));
      rest.remove_prefix(end + 1);
      NIBBLE_RETURN_IF_ERROR(keep(line));
      whole_bytes += static_cast<std::int64_t>(line.size()) + 1;
      line.clear();
    }
    line.append(rest);
  }
  if (line.empty()) {
    return {};
  }
  if (!may_be_cut_line(line)) {
    return error(Code::kInvalidArgument,
                 "{}: want lines that a batch wrote, found something else in line {}", path_,
                 num_lines_ + 1);
  }
  return ftruncate(file_, whole_bytes) == 0 ? Status() : system_error(path_);
}

Status BatchOutput::keep(const std::string& line) {
  const std::optional<BatchRecord> record = read_batch_record(line);
  if (!record.has_value()) {
    return error(Code::kInvalidArgument,
                 "{}: want lines that a batch wrote, found something else in line {}", path_,
                 num_lines_ + 1);
  }
  ++num_lines_;
  num_failures_ += record->is_failure ? 1 : 0;
  if (record->custom_id.empty()) {
    refused_.insert(record->number);
  } else {
    done_ids_.insert(record->custom_id);
  }
  return {};
}

bool BatchOutput::has(const BatchLine& line) const {
  return line.custom_id.empty() ? refused_.contains(line.number)
                                : done_ids_.contains(line.custom_id);
}

Status BatchOutput::append(const std::string& line) {
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t count = ::write(file_, line.data() + done, line.size() - done);
    if (count < 0 && errno != EINTR) {
      return system_error(path_);
    }
    done += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
  return {};
}

}  // namespace nibble::server
