// One safetensors file: 8-byte little-endian header length, JSON header, tensor bytes.
// docs/formats/safetensors.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "nibble/status.h"
#include "tensor/view.h"

namespace nibble::weights {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::int64_t begin = 0;  // bytes from the start of the data section
  std::int64_t end = 0;
};

struct Header {
  std::vector<TensorEntry> tensors;             // in order of begin
  std::map<std::string, std::string> metadata;  // "__metadata__"
  std::int64_t data_begin = 0;                  // offset of the data section in the file
};

// Parses and checks everything the format promises: header length, JSON without duplicate keys,
// known dtypes, non-negative shapes whose byte count does not overflow and equals end - begin,
// ranges inside the file, no overlap, no hole, exact file length. Reads only `bytes`. Every failure
// is kCorrupt, one line that begins with `path`.
Result<Header> parse_header(const std::string& path, std::span<const std::byte> bytes);

// A mapped and checked file.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  const Header& header() const { return header_; }
  const MappedFile& file() const { return file_; }
  TensorView view(const TensorEntry& entry) const;

 private:
  MappedFile file_;
  Header header_;
};

}  // namespace nibble::weights
