// The regular expressions of JSON schemas (ECMA-262, Unicode mode), as automata.
#pragma once

#include <string_view>

#include "grammar/byte_automaton.h"
#include "nibble/status.h"

namespace nibble::grammar {

// The canonical spellings (json_text.h, without quotes) of the strings that hold a match of
// `pattern`: as schemas demand, it matches anywhere unless it is anchored. kInvalidArgument with
// the byte offset: not a pattern, a construct that is no regular language or is not supported
// (look-around, back references, \b, \p), or too large. The language may be empty.
Result<Dfa> regex_content(std::string_view pattern);

}  // namespace nibble::grammar
