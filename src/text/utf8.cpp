#include "text/utf8.h"

namespace nibble::text {

namespace {

struct Lead {
  std::size_t length;       // 0: begins nothing
  unsigned char low, high;  // bounds of the second byte
};

Lead lead_of(unsigned char byte) {
  if (byte < 0xC2) {
    return {0, 0, 0};
  }
  if (byte < 0xE0) {
    return {2, 0x80, 0xBF};
  }
  if (byte < 0xF0) {
    const unsigned char low = byte == 0xE0 ? 0xA0 : 0x80;   // overlong
    const unsigned char high = byte == 0xED ? 0x9F : 0xBF;  // surrogates
    return {3, low, high};
  }
  if (byte < 0xF5) {
    const unsigned char low = byte == 0xF0 ? 0x90 : 0x80;   // overlong
    const unsigned char high = byte == 0xF4 ? 0x8F : 0xBF;  // above U+10FFFF
    return {4, low, high};
  }
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (byte(0) < 0x80) {
    return {1, Utf8Kind::kValid};
  }
  const Lead lead = lead_of(byte(0));
  if (lead.length == 0) {
    return {1, Utf8Kind::kInvalid};
  }
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) {
      return {i, Utf8Kind::kIncomplete};
    }
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) {
      return {i, Utf8Kind::kInvalid};
    }
  }
  return {lead.length, Utf8Kind::kValid};
}

std::size_t utf8_valid_prefix(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    if (static_cast<unsigned char>(bytes[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = utf8_step(bytes.substr(at));
    if (step.kind != Utf8Kind::kValid) {
      break;
    }
    at += step.length;
  }
  return at;
}

char32_t utf8_code_point(const char* bytes, std::size_t length) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (length == 1) {
    return byte(0);
  }
  char32_t point = byte(0) & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    point = (point << 6U) | (byte(i) & 0x3FU);
  }
  return point;
}

}  // namespace nibble::text
