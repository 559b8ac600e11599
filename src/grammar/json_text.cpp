#include "grammar/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace nibble::grammar {
namespace {

constexpr char32_t kSurrogateLow = 0xD800;
constexpr char32_t kSurrogateHigh = 0xDFFF;
constexpr std::array<char32_t, 5> kFirstOfLength = {0, 0x80, 0x800, 0x10000, kMaxCodePoint + 1};

bool must_be_escaped(char32_t point) { return point < 0x20 || point == '"' || point == '\\'; }

std::string escaped(char32_t point) {
  switch (point) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return fmt::format("\\u{:04x}", static_cast<std::uint32_t>(point));
  }
}

// The encodings of a range of code points that have the same length.
class Utf8Range {
 public:
  Utf8Range(Nfa& nfa, Nfa::State to) : nfa_(nfa), to_(to) {}

  // `low` and `high` are the bits that are still to be written; `tail` bytes of 6 bits follow the
  // next one, which begins with the bits of `mark`.
  void add(Nfa::State from, CodePoints bits, std::uint32_t tail, std::uint8_t mark) {
    const std::uint32_t shift = 6 * tail;
    const char32_t mask = (char32_t{1} << shift) - 1;
    char32_t first = bits.low >> shift;
    char32_t last = bits.high >> shift;
    if (tail == 0) {
      add_edge(from, mark | first, mark | last, to_);
      return;
    }
    const auto descend = [&](char32_t low, char32_t high, CodePoints rest) {
      const Nfa::State next = nfa_.add_state();
      add_edge(from, mark | low, mark | high, next);
      add(next, rest, tail - 1, 0x80);
    };
    if (first == last) {
      descend(first, first, {bits.low & mask, bits.high & mask});
      return;
    }
    if ((bits.low & mask) != 0) {
      descend(first, first, {bits.low & mask, mask});
      ++first;
    }
    if ((bits.high & mask) != mask) {
      descend(last, last, {0, bits.high & mask});
      --last;
    }
    if (first <= last) {
      descend(first, last, {0, mask});
    }
  }

 private:
  void add_edge(Nfa::State from, char32_t low, char32_t high, Nfa::State to) {
    nfa_.add_edge(from, static_cast<std::uint8_t>(low), static_cast<std::uint8_t>(high), to);
  }

  Nfa& nfa_;
  Nfa::State to_;
};

void add_utf8(Nfa& nfa, Nfa::State from, CodePoints range, Nfa::State to) {
  constexpr std::array<std::uint8_t, 4> kMark = {0, 0xC0, 0xE0, 0xF0};
  for (std::uint32_t tail = 0; tail < 4; ++tail) {
    const char32_t low = std::max(range.low, kFirstOfLength[tail]);
    const char32_t high = std::min<char32_t>(range.high, kFirstOfLength[tail + 1] - 1);
    if (low <= high) {
      Utf8Range(nfa, to).add(from, {low, high}, tail, kMark[tail]);
    }
  }
}

}  // namespace

void add_characters(Nfa& nfa, Nfa::State from, const std::vector<CodePoints>& ranges,
                    Nfa::State to) {
  // Where no plain run may cross: each character that is escaped, and the surrogates.
  for (const CodePoints& range : ranges) {
    char32_t begin = range.low;
    const auto plain_until = [&](char32_t end) {
      if (begin < end) {
        add_utf8(nfa, from, {begin, end - 1}, to);
      }
    };
    for (char32_t point = 0; point <= '\\'; ++point) {
      if (must_be_escaped(point) && range.low <= point && point <= range.high) {
        plain_until(point);
        begin = point + 1;
        nfa.add_literal(from, escaped(point), to);
      }
    }
    if (begin <= kSurrogateHigh && range.high >= kSurrogateLow) {
      plain_until(kSurrogateLow);
      begin = kSurrogateHigh + 1;
    }
    plain_until(range.high + 1);
  }
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (must_be_escaped(byte)) {
      out += escaped(byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::optional<Dfa> string_content(std::uint32_t least, std::uint32_t most) {
  Nfa nfa;
  const Nfa::State start = nfa.add_state();
  const Nfa::State accept = nfa.add_state();
  const bool is_bounded = most != UINT32_MAX;
  Nfa::State at = start;
  for (std::uint32_t i = 0; i < (is_bounded ? most : least); ++i) {
    if (i >= least) {
      nfa.add_jump(at, accept);
    }
    const Nfa::State next = nfa.add_state();
    add_characters(nfa, at, {{0, kMaxCodePoint}}, next);
    at = next;
    if (nfa.num_states() > kMaxNfaStates) {
      return std::nullopt;
    }
  }
  if (!is_bounded) {
    add_characters(nfa, at, {{0, kMaxCodePoint}}, at);
  }
  nfa.add_jump(at, accept);
  return determinize(nfa, start, accept);
}

Dfa in_quotes(const Dfa& content) {
  if (content.is_empty()) {
    return {};
  }
  // 0: before the opening quote; then the content, moved by one; last: behind the closing quote.
  Dfa out;
  out.nodes.push_back({.edges = {{'"', '"', 1}}, .accepts = false});
  const auto end = static_cast<std::uint32_t>(content.nodes.size() + 1);
  for (const Dfa::Node& node : content.nodes) {
    Dfa::Node moved;
    for (const Dfa::Edge& edge : node.edges) {
      moved.edges.push_back({edge.low, edge.high, edge.target + 1});
    }
    if (node.accepts) {
      moved.edges.push_back({'"', '"', end});  // a bare quote is in no content
      std::sort(moved.edges.begin(), moved.edges.end(),
                [](const Dfa::Edge& a, const Dfa::Edge& b) { return a.low < b.low; });
    }
    out.nodes.push_back(std::move(moved));
  }
  out.nodes.push_back({.edges = {}, .accepts = true});
  return out;
}

std::optional<Dfa> any_of(const std::vector<std::string>& texts) {
  Nfa nfa;
  const Nfa::State start = nfa.add_state();
  const Nfa::State accept = nfa.add_state();
  for (const std::string& text : texts) {
    nfa.add_literal(start, text, accept);
  }
  return determinize(nfa, start, accept);
}

}  // namespace nibble::grammar
