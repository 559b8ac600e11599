// Steps through bytes that may or may not be UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nibble::text {

enum class Utf8Kind : std::uint8_t {
  kValid,       // one well-formed character
  kInvalid,     // a maximal subpart of an ill-formed sequence, or a byte that can begin nothing
  kIncomplete,  // the bytes end inside what may still become a character
};

struct Utf8Step {
  std::size_t length = 0;  // bytes, at least 1
  Utf8Kind kind = Utf8Kind::kValid;
};

// The first character or fault of `bytes`, which must not be empty. Follows Unicode 15, table 3-7:
// no overlong forms, no surrogates, nothing above U+10FFFF.
Utf8Step utf8_step(std::string_view bytes);

// Length of the longest prefix that is valid UTF-8.
std::size_t utf8_valid_prefix(std::string_view bytes);

// Code point of a well-formed character of `length` bytes.
char32_t utf8_code_point(const char* bytes, std::size_t length);

}  // namespace nibble::text
