// Any bytes as a safetensors file: refused in one line, or every tensor lies inside the bytes,
// one after the other, with as many bytes as its shape and type need. The same bytes as an index.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "weights/checkpoint_index.h"
#include "weights/safetensors.h"

namespace nibble::weights {
namespace {

void require(bool claim, const std::string& message) {
  if (!claim) {
    std::fprintf(stderr, "%s\n", message.c_str());
    std::abort();
  }
}

void check_refusal(const Status& status) {
  require(status.code() == Code::kCorrupt && status.message().starts_with("fuzz: ") &&
              status.message().find('\n') == std::string::npos,
          "bad refusal: " + status.message());
}

void check_header(const Header& header, std::size_t num_bytes) {
  std::int64_t cursor = 0;
  for (const TensorEntry& entry : header.tensors) {
    const TensorView view{nullptr, entry.dtype, entry.shape};
    require(entry.begin == cursor && entry.end - entry.begin == view.bytes(), entry.name);
    cursor = entry.end;
  }
  require(header.data_begin + cursor == static_cast<std::int64_t>(num_bytes), "bytes left over");
}

void run(const std::uint8_t* data, std::size_t num_bytes) {
  const Result<Header> header =
      parse_header("fuzz", {reinterpret_cast<const std::byte*>(data), num_bytes});
  if (header) {
    check_header(*header, num_bytes);
  } else {
    check_refusal(header.error());
  }
  const Result<WeightMap> index =
      parse_index("fuzz", {reinterpret_cast<const char*>(data), num_bytes});
  if (index) {
    require(!index->empty(), "an index without tensors");
  } else {
    check_refusal(index.error());
  }
}

}  // namespace
}  // namespace nibble::weights

// NOLINTNEXTLINE(readability-identifier-naming): the fuzzer calls it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  nibble::weights::run(data, num_bytes);
  return 0;
}
