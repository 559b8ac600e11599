#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace nibble {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return error(Code::kNotFound, "{}: cannot open: {}", path, std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return error(Code::kCorrupt, "{}: want a regular file, found a directory or device", path);
  }
  MappedFile file;
  file.path_ = path;
  file.size_bytes_ = static_cast<std::size_t>(info.st_size);
  if (file.size_bytes_ > 0) {
    void* data = ::mmap(nullptr, file.size_bytes_, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      const int reason = errno;
      ::close(fd);
      return error(Code::kExhausted, "{}: cannot map {} bytes: {}", path, file.size_bytes_,
                   std::strerror(reason));
    }
    file.data_ = static_cast<const std::byte*>(data);
    // Weights are read whole, row after row: large pages spare look-ups of addresses. Advice only.
    (void)::madvise(data, file.size_bytes_, MADV_HUGEPAGE);
  }
  ::close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_bytes_);
  }
}

void MappedFile::drop(const std::byte* begin, std::size_t length) const {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t first = static_cast<std::size_t>(begin - data_);
  const std::size_t from = (first + page - 1) / page * page;  // keep pages shared with neighbours
  const std::size_t to = (first + length) / page * page;
  if (from < to) {
    ::madvise(const_cast<std::byte*>(data_) + from, to - from, MADV_DONTNEED);
  }
}

}  // namespace nibble
