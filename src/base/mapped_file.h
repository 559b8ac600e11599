// A whole file mapped read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "nibble/status.h"

namespace nibble {

// Owns the mapping; movable. Bytes stay valid until destruction. If another process truncates the
// file meanwhile, reading past its new end raises SIGBUS, as for every mapping.
class MappedFile {
 public:
  // kNotFound if `path` cannot be opened, kCorrupt if it is not a regular file.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }
  const std::string& path() const { return path_; }

  // Tells the kernel that [begin, begin + length) is not needed again soon: its pages leave this
  // process's resident set. The contents stay readable.
  void drop(const std::byte* begin, std::size_t length) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace nibble
