// How JSON values are spelled, as automata over bytes. docs/structured-output.md says which of the
// spellings that JSON permits are generated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/byte_automaton.h"

namespace nibble::grammar {

struct CodePoints {
  char32_t low, high;  // inclusive
};
inline constexpr char32_t kMaxCodePoint = 0x10FFFF;

// Adds the ways from `from` to `to` that spell one character of `ranges` inside a JSON string in
// its one canonical spelling: UTF-8, with the short escape or \u00xx for what must be escaped.
// Surrogates have none.
void add_characters(Nfa& nfa, Nfa::State from, const std::vector<CodePoints>& ranges,
                    Nfa::State to);

// The canonical spelling of a string, quotes included. `text` is UTF-8.
std::string json_string(std::string_view text);

// Canonical strings without their quotes, of `least` to `most` characters.
std::optional<Dfa> string_content(std::uint32_t least, std::uint32_t most);

// `content` between quotes.
Dfa in_quotes(const Dfa& content);

// Exactly these texts.
std::optional<Dfa> any_of(const std::vector<std::string>& texts);

}  // namespace nibble::grammar
