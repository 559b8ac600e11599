#include "support/tiny_tokenizer.h"

#include <fmt/format.h>

namespace nibble::text {

namespace {

bool is_printable(int byte) {
  return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
}

std::string quoted(const std::string& spelling) {
  std::string out = "\"";
  for (const char c : spelling) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out + '"';
}

}  // namespace

std::string alphabet_spelling(int byte) {
  int point = byte;
  if (!is_printable(byte)) {
    point = 0x100;
    for (int other = 0; other < byte; ++other) {
      point += is_printable(other) ? 0 : 1;
    }
  }
  if (point < 0x80) {
    return {static_cast<char>(point)};
  }
  return {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
}

std::string TinyTokenizer::json() const {
  std::string vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab += fmt::format("{}{}: {}", byte == 0 ? "" : ", ", quoted(alphabet_spelling(byte)), byte);
  }
  std::string list;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    vocab += fmt::format(", {}: {}", quoted(left + right), 256 + i);
    list += i == 0 ? "" : ", ";
    list += merges_as_pairs ? fmt::format("[{}, {}]", quoted(left), quoted(right))
                            : quoted(fmt::format("{} {}", left, right));
  }
  return fmt::format(
      R"({{"added_tokens": {}, "pre_tokenizer": {},
 "model": {{"type": "BPE", "vocab": {{{}}}, "merges": [{}]{}}}}})",
      added_tokens, pre_tokenizer, vocab, list, model_extra);
}

}  // namespace nibble::text
