#include "grammar/number_text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace nibble::grammar {
namespace {

// |value| as digits: "12" and "5" for 12.5; no leading zeros in `whole` (zero is empty), no
// trailing ones in `fraction`.
struct Magnitude {
  std::string whole, fraction;
  bool is_zero() const { return whole.empty() && fraction.empty(); }
};
struct Limit {
  Magnitude value;
  bool is_exclusive = false;
};
struct Signed {
  Magnitude value;
  bool is_negative = false;
};

constexpr int kMaxExponent = 400;  // of doubles, with room

Result<Signed> parse(const std::string& decimal) {
  const bool is_negative = decimal.starts_with('-');
  const std::size_t mantissa_end = std::min(decimal.find_first_of("eE"), decimal.size());
  int exponent = 0;
  if (mantissa_end < decimal.size()) {
    const char* begin = decimal.data() + mantissa_end + 1;
    begin += *begin == '+' ? 1 : 0;
    const auto parsed = std::from_chars(begin, decimal.data() + decimal.size(), exponent);
    if (parsed.ec != std::errc() || exponent < -kMaxExponent || exponent > kMaxExponent) {
      return error(Code::kInvalidArgument, "want an exponent within {}, found {}", kMaxExponent,
                   decimal);
    }
  }
  const std::string mantissa =
      decimal.substr(is_negative ? 1 : 0, mantissa_end - (is_negative ? 1 : 0));
  const std::size_t dot = std::min(mantissa.find('.'), mantissa.size());
  std::string digits = mantissa.substr(0, dot);
  auto point = static_cast<int>(digits.size()) + exponent;
  digits += dot < mantissa.size() ? mantissa.substr(dot + 1) : "";
  if (point < 0) {
    digits.insert(0, static_cast<std::size_t>(-point), '0');
    point = 0;
  }
  if (point > static_cast<int>(digits.size())) {
    digits.append(static_cast<std::size_t>(point) - digits.size(), '0');
  }
  Magnitude value{digits.substr(0, static_cast<std::size_t>(point)),
                  digits.substr(static_cast<std::size_t>(point))};
  value.whole.erase(0, std::min(value.whole.find_first_not_of('0'), value.whole.size()));
  value.fraction.resize(value.fraction.find_last_not_of('0') + 1);
  if (value.whole.size() > kMaxIntegerDigits || value.fraction.size() > kMaxFractionDigits) {
    return error(Code::kInvalidArgument,
                 "want at most {} digits before and {} behind the point, found {}",
                 kMaxIntegerDigits, kMaxFractionDigits, decimal);
  }
  return Signed{value, is_negative && !value.is_zero()};
}

// Decimals without a sign between two limits: one automaton state for each place and for how the
// digits so far compare with those of the limits.
class RangeBuilder {
 public:
  RangeBuilder(Nfa& nfa, Nfa::State accept, bool is_integer)
      : nfa_(nfa), accept_(accept), is_integer_(is_integer) {}

  // From `start`, numbers whose magnitude is in least..most.
  void add(Nfa::State start, const std::optional<Limit>& least, const std::optional<Limit>& most) {
    least_ = least;
    most_ = most;
    for (std::size_t length = 1; length <= kMaxIntegerDigits; ++length) {
      length_ = length;
      states_.clear();
      // Zero is spelled with one digit though its magnitude has none.
      const auto digits_of = [](const Limit& limit) {
        return std::max<std::size_t>(limit.value.whole.size(), 1);
      };
      const bool is_too_short = least && digits_of(*least) > length;
      const bool is_too_long = most && digits_of(*most) < length;
      if (!is_too_short && !is_too_long) {
        add_digits(start, {.at = 0,
                           .is_above = !least || digits_of(*least) < length,
                           .is_below = !most || digits_of(*most) > length});
      }
    }
  }

 private:
  struct Place {
    std::size_t at;  // digits read, the point not counted
    bool is_above;   // already above the lower limit whatever follows
    bool is_below;
    bool operator<(const Place& other) const {
      return std::tie(at, is_above, is_below) < std::tie(other.at, other.is_above, other.is_below);
    }
  };

  // The digit of a limit at a place, its last ones 0.
  char digit(const Limit& limit, std::size_t at) const {
    if (at < length_) {
      const std::size_t padding = length_ - limit.value.whole.size();
      return at < padding ? '0' : limit.value.whole[at - padding];
    }
    const std::size_t behind = at - length_;
    return behind < limit.value.fraction.size() ? limit.value.fraction[behind] : '0';
  }

  // May the number end here, all further digits being 0?
  bool may_end(const Place& place) const {
    const auto has_rest = [&](const Limit& limit) {
      return place.at < length_ + limit.value.fraction.size();
    };
    const bool is_least_met = place.is_above || (!has_rest(*least_) && !least_->is_exclusive);
    const bool is_most_met = place.is_below || has_rest(*most_) || !most_->is_exclusive;
    return is_least_met && is_most_met;
  }

  void add_digits(Nfa::State from, const Place& place) {
    for (char d = '0'; d <= '9'; ++d) {
      const bool is_leading_zero = place.at == 0 && d == '0' && length_ > 1;
      const bool is_too_low = !place.is_above && d < digit(*least_, place.at);
      const bool is_too_high = !place.is_below && d > digit(*most_, place.at);
      if (is_leading_zero || is_too_low || is_too_high) {
        continue;
      }
      const Place next{.at = place.at + 1,
                       .is_above = place.is_above || d > digit(*least_, place.at),
                       .is_below = place.is_below || d < digit(*most_, place.at)};
      const auto byte = static_cast<std::uint8_t>(d);
      nfa_.add_edge(from, byte, byte, state_of(next));
    }
  }

  Nfa::State state_of(const Place& place) {
    const auto [at, is_new] = states_.try_emplace(place, 0);
    if (!is_new) {
      return at->second;
    }
    const Nfa::State state = nfa_.add_state();
    at->second = state;
    if (place.at < length_) {
      add_digits(state, place);
      return state;
    }
    if (may_end(place)) {
      nfa_.add_jump(state, accept_);
    }
    if (!is_integer_ && place.at < length_ + kMaxFractionDigits) {
      Nfa::State from = state;
      if (place.at == length_) {
        from = nfa_.add_state();
        nfa_.add_edge(state, '.', '.', from);
      }
      add_digits(from, place);
    }
    return state;
  }

  Nfa& nfa_;
  Nfa::State accept_;
  bool is_integer_;
  std::optional<Limit> least_, most_;
  std::size_t length_ = 0;  // digits before the point
  std::map<Place, Nfa::State> states_;
};

// digits [. digits] e [+-] digit [digit], the decimal at least `least`.
void add_exponent_forms(Nfa& nfa, Nfa::State start, const std::optional<Limit>& least,
                        Nfa::State accept) {
  const Nfa::State decimal = nfa.add_state();
  const Nfa::State exponent = nfa.add_state();
  const Nfa::State first = nfa.add_state();
  const Nfa::State last = nfa.add_state();
  RangeBuilder(nfa, decimal, false).add(start, least, std::nullopt);
  nfa.add_edge(decimal, 'E', 'E', exponent);
  nfa.add_edge(decimal, 'e', 'e', exponent);
  nfa.add_edge(exponent, '+', '+', first);
  nfa.add_edge(exponent, '-', '-', first);
  nfa.add_jump(exponent, first);
  nfa.add_edge(first, '0', '9', last);
  nfa.add_edge(last, '0', '9', accept);
  nfa.add_jump(last, accept);
}

}  // namespace

Result<Dfa> number_text(const NumberRange& range) {
  Nfa nfa;
  const Nfa::State start = nfa.add_state();
  const Nfa::State accept = nfa.add_state();
  const Nfa::State minus = nfa.add_state();
  nfa.add_edge(start, '-', '-', minus);
  std::optional<Limit> least, most;                    // of what has no sign
  std::optional<Limit> negative_least, negative_most;  // of magnitudes behind a sign
  negative_least = Limit{.value = {}, .is_exclusive = true};
  bool has_negative = true;
  bool has_positive = true;
  if (range.least) {
    NIBBLE_ASSIGN_OR_RETURN(const Signed bound, parse(range.least->decimal));
    const Limit limit{bound.value, range.least->is_exclusive};
    has_negative = bound.is_negative;
    (bound.is_negative ? negative_most : least) = limit;
  }
  if (range.most) {
    NIBBLE_ASSIGN_OR_RETURN(const Signed bound, parse(range.most->decimal));
    const Limit limit{bound.value, range.most->is_exclusive};
    has_positive = !bound.is_negative;
    (bound.is_negative ? negative_least : most) = limit;
  }
  if (has_negative) {
    RangeBuilder(nfa, accept, range.is_integer).add(minus, negative_least, negative_most);
  }
  if (has_positive) {
    RangeBuilder(nfa, accept, range.is_integer).add(start, least, most);
  }
  if (!range.is_integer && !range.least && !range.most) {
    add_exponent_forms(nfa, start, least, accept);
    add_exponent_forms(nfa, minus, negative_least, accept);
  }
  std::optional<Dfa> dfa = determinize(nfa, start, accept);
  NIBBLE_CHECK(dfa.has_value());  // some hundred states at most
  return std::move(*dfa);
}

}  // namespace nibble::grammar
