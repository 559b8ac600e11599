#include "grammar/regex.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "grammar/json_text.h"

namespace nibble::grammar {
namespace {

using Ranges = std::vector<CodePoints>;
constexpr int kMaxGroups = 64;  // nested; the parser recurses into groups
constexpr std::uint32_t kUnbounded = UINT32_MAX;
constexpr std::uint32_t kMaxCount = 1'000'000;  // larger counts cannot be built anyway

Ranges complement(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodePoints& a, const CodePoints& b) { return a.low < b.low; });
  Ranges out;
  char32_t begin = 0;
  for (const CodePoints& range : ranges) {
    if (begin < range.low) {
      out.push_back({begin, range.low - 1});
    }
    begin = std::max<char32_t>(begin, range.high + 1);
  }
  if (begin <= kMaxCodePoint) {
    out.push_back({begin, kMaxCodePoint});
  }
  return out;
}

// Disjoint and ascending.
Ranges merged(const Ranges& ranges) { return complement(complement(ranges)); }

const Ranges& digits() {
  static const Ranges kRanges = {{'0', '9'}};
  return kRanges;
}
const Ranges& word_characters() {
  static const Ranges kRanges = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return kRanges;
}
const Ranges& white_space() {
  static const Ranges kRanges = {
      {0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
      {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return kRanges;
}
const Ranges& line_ends() {
  static const Ranges kRanges = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return kRanges;
}

// A part of the automaton with one way in and one way out.
struct Part {
  Nfa::State begin, end;
};

// Recursive descent that builds while it reads. The first fault sticks and ends everything.
class RegexParser {
 public:
  explicit RegexParser(std::string_view pattern) : pattern_(pattern) {}

  Result<Dfa> run() {
    const Nfa::State start = nfa_.add_state();
    add_characters(nfa_, start, {{0, kMaxCodePoint}}, start);
    const Part whole = alternatives(0);
    if (fault_.empty() && at_ < pattern_.size()) {
      fail("a ')' that closes nothing");
    }
    const Nfa::State rest = nfa_.add_state();
    const Nfa::State accept = nfa_.add_state();
    // `rest` can read every string, so a set that holds it has matched for good.
    add_characters(nfa_, rest, {{0, kMaxCodePoint}}, rest);
    nfa_.set_dominant(rest);
    nfa_.add_jump(start, whole.begin);
    nfa_.add_jump(whole.end, rest);
    nfa_.add_jump(rest, accept);
    if (!fault_.empty()) {
      return error(Code::kInvalidArgument, "byte {}: {}", fault_at_, fault_);
    }
    std::optional<Dfa> dfa = determinize(nfa_, start, accept);
    if (!dfa) {
      return error(Code::kInvalidArgument, "too large: want at most {} states", kMaxDfaStates);
    }
    return std::move(*dfa);
  }

 private:
  bool is_done() const { return !fault_.empty() || at_ >= pattern_.size(); }
  char peek() const { return is_done() ? '\0' : pattern_[at_]; }
  bool next_is(char c) const { return !is_done() && pattern_[at_] == c; }
  bool take(std::string_view text) {
    if (is_done() || !pattern_.substr(at_).starts_with(text)) {
      return false;
    }
    at_ += text.size();
    return true;
  }
  void fail(std::string reason) {
    if (fault_.empty()) {
      fault_ = std::move(reason);
      fault_at_ = at_;
    }
  }

  Part empty_part() {
    const Nfa::State state = nfa_.add_state();
    return {state, state};
  }
  Part characters(const Ranges& ranges) {
    const Part part{nfa_.add_state(), nfa_.add_state()};
    add_characters(nfa_, part.begin, merged(ranges), part.end);
    return part;
  }

  Part alternatives(int depth) {
    if (depth > kMaxGroups) {
      fail("groups nested too deep");
      return empty_part();
    }
    const Part whole{nfa_.add_state(), nfa_.add_state()};
    do {
      const Part one = sequence(depth);
      nfa_.add_jump(whole.begin, one.begin);
      nfa_.add_jump(one.end, whole.end);
    } while (take("|"));
    return whole;
  }

  Part sequence(int depth) {
    Part whole = empty_part();
    while (!is_done() && !next_is('|') && !next_is(')')) {
      const Part next = repeated(depth);
      nfa_.add_jump(whole.end, next.begin);
      whole.end = next.end;
    }
    return whole;
  }

  // An atom with its quantifier. Counted repeats read the atom again for each copy.
  Part repeated(int depth) {
    if (next_is('^') || next_is('$')) {
      return anchor();
    }
    const std::size_t atom_at = at_;
    Part copy = atom(depth);
    const std::size_t atom_end = at_;
    std::uint32_t least = 1;
    std::uint32_t most = 1;
    if (!quantifier(least, most)) {
      return copy;
    }
    const std::size_t after = at_;
    Part whole = empty_part();
    const std::uint32_t copies = most == kUnbounded ? std::max(least, 1U) : most;
    const Nfa::State end = nfa_.add_state();
    for (std::uint32_t i = 0; i < copies && fault_.empty(); ++i) {
      if (i >= least) {
        nfa_.add_jump(whole.end, end);
      }
      if (i > 0) {
        at_ = atom_at;
        copy = atom(depth);
        at_ = atom_end;
      }
      nfa_.add_jump(whole.end, copy.begin);
      whole.end = copy.end;
      limit_states();
    }
    if (most == kUnbounded) {
      whole.end = loop(copy);
    }
    nfa_.add_jump(whole.end, end);
    at_ = after;
    return {whole.begin, end};
  }

  // The last copy may run again.
  Nfa::State loop(const Part& copy) {
    const Nfa::State hub = nfa_.add_state();
    nfa_.add_jump(copy.end, hub);
    nfa_.add_jump(hub, copy.begin);
    return hub;
  }

  Part anchor() {
    const bool is_start = take("^");
    if (!is_start) {
      (void)take("$");
    }
    const Part part{nfa_.add_state(), nfa_.add_state()};
    nfa_.add_jump(part.begin, part.end, is_start ? Nfa::When::kAtStart : Nfa::When::kAtEnd);
    if (next_is('*') || next_is('+') || next_is('?') || next_is('{')) {
      fail("nothing to repeat");
    }
    return part;
  }

  void limit_states() {
    if (nfa_.num_states() > kMaxNfaStates) {
      fail(fmt::format("too large: want at most {} states", kMaxNfaStates));
    }
  }

  // False when there is none. A lazy one is the same language.
  bool quantifier(std::uint32_t& least, std::uint32_t& most) {
    if (take("*")) {
      least = 0;
      most = kUnbounded;
    } else if (take("+")) {
      most = kUnbounded;
    } else if (take("?")) {
      least = 0;
    } else if (take("{")) {
      counts(least, most);
    } else {
      return false;
    }
    (void)take("?");
    if (next_is('*') || next_is('+') || next_is('?') || next_is('{')) {
      fail("nothing to repeat");
    }
    return fault_.empty();
  }

  void counts(std::uint32_t& least, std::uint32_t& most) {
    const std::optional<std::uint32_t> first = number();
    if (!first) {
      fail("want {n}, {n,} or {n,m}");
      return;
    }
    least = *first;
    most = least;
    if (take(",")) {
      most = number().value_or(kUnbounded);
    }
    if (!take("}")) {
      fail("want {n}, {n,} or {n,m}");
    } else if (most < least) {
      fail("a repeat whose least count is above its most");
    }
  }

  std::optional<std::uint32_t> number() {
    std::optional<std::uint32_t> value;
    while (peek() >= '0' && peek() <= '9') {
      value =
          std::min(value.value_or(0) * 10 + static_cast<std::uint32_t>(peek() - '0'), kMaxCount);
      ++at_;
    }
    return value;
  }

  Part atom(int depth) {
    limit_states();
    if (take("(")) {
      return group(depth);
    }
    if (take("[")) {
      return characters(bracket());
    }
    if (take(".")) {
      return characters(complement(line_ends()));
    }
    if (take("\\")) {
      return characters(escape(false));
    }
    if (next_is('*') || next_is('+') || next_is('?') || next_is('{')) {
      fail("nothing to repeat");
    } else if (next_is(']') || next_is('}')) {
      fail(std::string("a lone '") + peek() + "'");
    }
    const char32_t point = code_point();
    return characters({{point, point}});
  }

  Part group(int depth) {
    if (take("?")) {
      if (next_is('<') && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != '=' &&
          pattern_[at_ + 1] != '!') {
        group_name();
      } else if (!take(":")) {
        fail("look-around and other (?...) groups are not supported");
      }
    }
    const Part part = alternatives(depth + 1);
    if (!take(")")) {
      fail("a group without ')'");
    }
    return part;
  }

  void group_name() {
    const std::size_t end = pattern_.find('>', at_);
    if (end == std::string_view::npos || end == at_ + 1) {
      fail("a group name without an end");
    } else {
      at_ = end + 1;
    }
  }

  Ranges bracket() {
    const bool is_negated = take("^");
    Ranges out;
    while (!is_done() && !next_is(']')) {
      const Ranges low = bracket_item();
      const bool is_range = next_is('-') && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
      if (!is_range) {
        out.insert(out.end(), low.begin(), low.end());
        continue;
      }
      (void)take("-");
      const Ranges high = bracket_item();
      const bool are_single = low.size() == 1 && high.size() == 1 && low[0].low == low[0].high &&
                              high[0].low == high[0].high;
      if (!are_single || low[0].low > high[0].low) {
        fail("a bad range in [...]");
        break;
      }
      out.push_back({low[0].low, high[0].low});
    }
    if (!take("]")) {
      fail("a '[' without ']'");
    }
    return is_negated ? complement(out) : out;
  }

  Ranges bracket_item() {
    if (take("\\")) {
      return escape(true);
    }
    const char32_t point = code_point();
    return {{point, point}};
  }

  Ranges escape(bool in_bracket) {
    const char kind = peek();
    if (is_done()) {
      fail("a lone backslash at the end");
      return {};
    }
    const auto single = [](char32_t point) { return Ranges{{point, point}}; };
    ++at_;
    switch (kind) {
      case 'd': return digits();
      case 'D': return complement(digits());
      case 'w': return word_characters();
      case 'W': return complement(word_characters());
      case 's': return white_space();
      case 'S': return complement(white_space());
      case 't': return single('\t');
      case 'n': return single('\n');
      case 'r': return single('\r');
      case 'f': return single('\f');
      case 'v': return single('\v');
      case 'x': return single(hex(2));
      case 'u': return single(hex(4));
      case '-':
        if (in_bracket) {
          return single('-');
        }
        break;
      default: break;
    }
    if (std::string_view("^$\\.*+?()[]{}|/-").find(kind) != std::string_view::npos) {
      return single(static_cast<char32_t>(kind));
    }
    --at_;
    fail(std::string("escape \\") + kind + " is not supported");
    return {};
  }

  char32_t hex(int count) {
    char32_t value = 0;
    for (int i = 0; i < count; ++i) {
      const char c = peek();
      const bool is_digit = c >= '0' && c <= '9';
      const auto lower = static_cast<char>(c | 0x20);
      if (!is_digit && (lower < 'a' || lower > 'f')) {
        fail(fmt::format("want {} hexadecimal digits", count));
        return 0;
      }
      value = value * 16 + static_cast<char32_t>(is_digit ? c - '0' : lower - 'a' + 10);
      ++at_;
    }
    return value;
  }

  // The pattern comes from JSON, so it is UTF-8.
  char32_t code_point() {
    const auto lead = static_cast<unsigned char>(peek());
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (is_done() || at_ + length > pattern_.size()) {
      fail("want a character");
      return 0;
    }
    char32_t point = length == 1 ? lead : lead & (0xFFU >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) {
      point = (point << 6U) | (static_cast<unsigned char>(pattern_[at_ + i]) & 0x3FU);
    }
    at_ += length;
    return std::min(point, kMaxCodePoint);
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string fault_;
  std::size_t fault_at_ = 0;
  Nfa nfa_;
};

}  // namespace

Result<Dfa> regex_content(std::string_view pattern) { return RegexParser(pattern).run(); }

}  // namespace nibble::grammar
