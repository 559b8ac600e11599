#include "base/disk_space.h"

#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace nibble {

Status check_disk_space(const std::string& folder, std::int64_t bytes) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) {
    return error(Code::kNotFound, "{}: want a folder to write to: {}", folder,
                 std::strerror(errno));
  }
  const auto found = static_cast<unsigned long long>(info.f_bavail) * info.f_frsize;
  if (found < static_cast<unsigned long long>(bytes)) {
    return error(Code::kExhausted, "{}: want {} bytes of free disk, found {}", folder, bytes,
                 found);
  }
  return {};
}

}  // namespace nibble
