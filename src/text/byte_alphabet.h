// The printable spelling that byte-level vocabularies give to bytes: one character a byte.
//
//   bytes 21-7E, A1-AC, AE-FF    themselves, U+0021 to U+00FF
//   the other 68, in order       U+0100 to U+0143
#pragma once

#include <string>
#include <string_view>

namespace nibble::text {

// Appends the bytes that `spelling` (valid UTF-8) stands for. False, with `out` as it was, if a
// character is outside the alphabet.
bool append_alphabet_bytes(std::string_view spelling, std::string& out);

}  // namespace nibble::text
