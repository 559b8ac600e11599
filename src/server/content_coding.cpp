#include "server/content_coding.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/error.h"

namespace nibble::server {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib's way to say: the largest window, gzip's header
constexpr int kDefaultMemory = 8;
constexpr std::size_t kPieceBytes = 64 << 10;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// zlib takes the input as writable and only reads it.
z_stream stream_over(std::string_view bytes) {
  NIBBLE_CHECK(bytes.size() <= std::numeric_limits<uInt>::max());
  z_stream out{};
  out.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  out.avail_in = static_cast<uInt>(bytes.size());
  return out;
}

Status too_large(std::size_t most_bytes) {
  return error(Code::kExhausted, "the body: want at most {} bytes once decompressed, found more",
               most_bytes);
}

// Grows `out` by what comes next, to at most one byte more than `most_bytes`; what zlib said.
int inflate_piece(z_stream& stream, std::size_t most_bytes, std::string& out) {
  const std::size_t before = out.size();
  const std::size_t room = std::min(kPieceBytes, most_bytes + 1 - before);
  out.resize(before + room);
  stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
  stream.avail_out = static_cast<uInt>(room);
  const int said = inflate(&stream, Z_NO_FLUSH);
  out.resize(before + room - stream.avail_out);
  return said;
}

}  // namespace

bool accepts_gzip(std::string_view accepted) {
  std::optional<bool> by_name;
  bool by_star = false;
  while (!accepted.empty()) {
    const std::size_t comma = std::min(accepted.find(','), accepted.size());
    const std::string_view coding = accepted.substr(0, comma);
    accepted.remove_prefix(std::min(comma + 1, accepted.size()));
    const std::size_t semicolon = std::min(coding.find(';'), coding.size());
    const std::string_view name = trimmed(coding.substr(0, semicolon));
    std::string_view weight = coding.substr(semicolon);
    weight.remove_prefix(std::min(weight.find('=') + 1, weight.size()));
    // "gzip;q=0.5": allowed unless q is zero.
    const bool is_zero = semicolon < coding.size() &&
                         trimmed(weight).find_first_not_of("0.") == std::string_view::npos;
    if (name == "gzip" || name == "x-gzip") {
      by_name = !is_zero;
    } else if (name == "*") {
      by_star = !is_zero;
    }
  }
  return by_name.value_or(by_star);
}

std::string gzip(std::string_view bytes) {
  z_stream stream = stream_over(bytes);
  NIBBLE_CHECK(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, kDefaultMemory,
                            Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, static_cast<uLong>(bytes.size())), '\0');
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  NIBBLE_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);  // there is room for the worst
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

Result<std::string> gunzip(std::string_view bytes, std::size_t most_bytes) {
  z_stream stream = stream_over(bytes);
  NIBBLE_CHECK(inflateInit2(&stream, kGzipWindow) == Z_OK);
  std::string out;
  int said = Z_OK;
  while (said == Z_OK && out.size() <= most_bytes) {
    said = inflate_piece(stream, most_bytes, out);
  }
  inflateEnd(&stream);
  if (out.size() > most_bytes) {
    return too_large(most_bytes);
  }
  if (said != Z_STREAM_END) {
    return error(Code::kCorrupt, "the body: want gzip, found {} bytes that are not, or not whole",
                 bytes.size());
  }
  if (stream.avail_in > 0) {
    return error(Code::kCorrupt, "the body: want one gzip stream, found {} bytes behind it",
                 stream.avail_in);
  }
  return out;
}

}  // namespace nibble::server
