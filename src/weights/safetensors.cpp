#include "weights/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "weights/header_sax.h"

namespace nibble::weights {
namespace {

// The reference implementation's limit; a 120b checkpoint's header has 0.1 MB.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kPrefixBytes = 8;

// Bits of the whole tensor, or -1 when they do not fit in 63 bits.
std::int64_t tensor_bits(const TensorEntry& entry) {
  std::int64_t bits = dtype_bits(entry.dtype);
  for (const std::int64_t extent : entry.shape) {
    if (__builtin_mul_overflow(bits, extent, &bits)) {
      return -1;
    }
  }
  return bits;
}

Status check_size(const std::string& path, const TensorEntry& entry) {
  const std::string name = printable(entry.name);
  if (entry.begin > entry.end) {
    return error(Code::kCorrupt, "{}: tensor {}: want begin <= end, found data_offsets [{}, {}]",
                 path, name, entry.begin, entry.end);
  }
  const std::int64_t bits = tensor_bits(entry);
  if (bits < 0) {
    return error(Code::kCorrupt, "{}: tensor {}: shape {} has more bytes than 63 bits can count",
                 path, name, shape_text(entry.shape));
  }
  if (bits % 8 != 0 || bits / 8 != entry.end - entry.begin) {
    return error(Code::kCorrupt,
                 "{}: tensor {}: {} {} needs {} bits, but data_offsets [{}, {}] hold {} bytes",
                 path, name, dtype_name(entry.dtype), shape_text(entry.shape), bits, entry.begin,
                 entry.end, entry.end - entry.begin);
  }
  return {};
}

// Where `entry` lies: right after its predecessor, inside the file, aligned to its elements.
Status check_place(const std::string& path, const TensorEntry& entry, std::int64_t cursor,
                   const Header& header, std::int64_t data_bytes) {
  const std::string name = printable(entry.name);
  if (entry.begin != cursor) {
    return error(Code::kCorrupt, "{}: tensor {}: {} (begins at {}, the tensor before ends at {})",
                 path, name,
                 entry.begin < cursor ? "overlaps another tensor" : "leaves a hole before it",
                 entry.begin, cursor);
  }
  if (entry.end > data_bytes) {
    return error(Code::kCorrupt,
                 "{}: cut short: tensor {} ends at byte {} of the data, but only {} are there",
                 path, name, entry.end, data_bytes);
  }
  const std::int64_t element_bytes = std::max(dtype_bits(entry.dtype) / 8, 1);
  if (entry.begin != entry.end && (header.data_begin + entry.begin) % element_bytes != 0) {
    return error(Code::kCorrupt,
                 "{}: tensor {}: begins at file offset {}, want a multiple of {} for {} (write the "
                 "file again with a current safetensors library)",
                 path, name, header.data_begin + entry.begin, element_bytes,
                 dtype_name(entry.dtype));
  }
  return {};
}

Status check_layout(const std::string& path, const Header& header, std::int64_t data_bytes) {
  std::int64_t cursor = 0;
  for (const TensorEntry& entry : header.tensors) {
    NIBBLE_RETURN_IF_ERROR(check_place(path, entry, cursor, header, data_bytes));
    cursor = entry.end;
  }
  if (cursor != data_bytes) {
    return error(Code::kCorrupt, "{}: want {} bytes of data after the header, found {}", path,
                 cursor, data_bytes);
  }
  return {};
}

Result<std::uint64_t> header_bytes(const std::string& path, std::span<const std::byte> bytes) {
  if (bytes.size() < kPrefixBytes) {
    return error(Code::kCorrupt, "{}: want at least {} bytes, found {}", path, kPrefixBytes,
                 bytes.size());
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kPrefixBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    return error(Code::kCorrupt, "{}: want a header of at most {} bytes, found length {}", path,
                 kMaxHeaderBytes, length);
  }
  if (length > bytes.size() - kPrefixBytes) {
    return error(Code::kCorrupt, "{}: cut short: the header has {} bytes, but only {} follow", path,
                 length, bytes.size() - kPrefixBytes);
  }
  return length;
}

}  // namespace

Result<Header> parse_header(const std::string& path, std::span<const std::byte> bytes) {
  NIBBLE_ASSIGN_OR_RETURN(const std::uint64_t length, header_bytes(path, bytes));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kPrefixBytes, length);
  NIBBLE_ASSIGN_OR_RETURN(Header header, parse_header_json(path, text));
  header.data_begin = static_cast<std::int64_t>(kPrefixBytes + length);
  for (const TensorEntry& entry : header.tensors) {
    NIBBLE_RETURN_IF_ERROR(check_size(path, entry));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  NIBBLE_RETURN_IF_ERROR(
      check_layout(path, header, static_cast<std::int64_t>(bytes.size() - kPrefixBytes - length)));
  return header;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile out;
  NIBBLE_ASSIGN_OR_RETURN(out.file_, MappedFile::open(path));
  NIBBLE_ASSIGN_OR_RETURN(out.header_, parse_header(path, out.file_.bytes()));
  return out;
}

TensorView SafetensorsFile::view(const TensorEntry& entry) const {
  NIBBLE_CHECK(entry.begin >= 0 &&
                   static_cast<std::size_t>(header_.data_begin + entry.end) <= file_.bytes().size(),
               entry.begin, entry.end);
  return {file_.bytes().data() + header_.data_begin + entry.begin, entry.dtype, entry.shape};
}

}  // namespace nibble::weights
