// Pre-tokenizer patterns, from the dialect of tokenizer.json (Oniguruma) to that of PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "nibble/status.h"

namespace nibble::text {

// Accepts what means the same in both, and spells out what does not (`\s`, `\d`). Everything else
// is refused: kUnsupported, a message that names the construct and its byte offset.
Result<std::string> translate_pattern(std::string_view pattern);

// A pattern that matches `text` and nothing else.
std::string literal_pattern(std::string_view text);

// The pattern that ByteLevel applies with `use_regex`.
std::string_view gpt2_pattern();

}  // namespace nibble::text
