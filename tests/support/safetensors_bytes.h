// Hand-made safetensors files.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace nibble::testing_support {

inline std::string length_prefix(std::uint64_t length) {
  std::string out;
  for (unsigned i = 0; i < 8; ++i) {
    out += static_cast<char>(length >> (8 * i) & 0xFFU);
  }
  return out;
}

// Length prefix, header padded to 8 bytes with spaces, then `data`.
inline std::string safetensors_bytes(std::string header, const std::string& data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return length_prefix(header.size()) + header + data;
}

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace nibble::testing_support
