// The spellings of JSON numbers within bounds, as automata.
#pragma once

#include <optional>
#include <string>

#include "grammar/byte_automaton.h"
#include "nibble/status.h"

namespace nibble::grammar {

// Digits that generated numbers may have. With them every number is finite and whole numbers are
// exact in double precision.
inline constexpr int kMaxIntegerDigits = 15;
inline constexpr int kMaxFractionDigits = 15;

struct Bound {
  std::string decimal;  // as in JSON: [-]digits[.digits][e[+-]digits]
  bool is_exclusive = false;
};
struct NumberRange {
  bool is_integer = false;
  std::optional<Bound> least, most;
};

// Plain decimals in the range; without any bound, numbers that are not integers may also have an
// exponent of one or two digits. Zero has no sign. The language may be empty. kInvalidArgument: a
// bound with more digits than generated numbers may have.
Result<Dfa> number_text(const NumberRange& range);

}  // namespace nibble::grammar
