#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace nibble::text {

namespace {

constexpr int kPoints = 0x144;

constexpr bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<std::int16_t, kPoints> byte_of_points() {
  std::array<std::int16_t, kPoints> table{};
  table.fill(-1);
  std::size_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const std::size_t point = is_printable(byte) ? static_cast<std::size_t>(byte) : next++;
    table[point] = static_cast<std::int16_t>(byte);
  }
  return table;
}

constexpr std::array<std::int16_t, kPoints> kByteOfPoint = byte_of_points();

}  // namespace

bool append_alphabet_bytes(std::string_view spelling, std::string& out) {
  const std::size_t before = out.size();
  while (!spelling.empty()) {
    const Utf8Step step = utf8_step(spelling);
    const char32_t point = step.kind == Utf8Kind::kValid
                               ? utf8_code_point(spelling.data(), step.length)
                               : static_cast<char32_t>(kPoints);
    if (point >= kPoints || kByteOfPoint[point] < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(static_cast<char>(kByteOfPoint[point]));
    spelling.remove_prefix(step.length);
  }
  return true;
}

}  // namespace nibble::text
