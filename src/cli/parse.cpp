#include "cli/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "base/error.h"

namespace nibble::cli {
namespace {

constexpr std::size_t kShownBytes = 40;  // of a wrong value, in messages

std::string shown(std::string_view text) {
  return text.size() <= kShownBytes ? fmt::format("'{}'", text)
                                    : fmt::format("'{}...'", text.substr(0, kShownBytes));
}

// The whole of `text` as a number; one leading '+' is allowed.
template <typename Number>
std::optional<Number> whole(std::string_view text) {
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') {
    text.remove_prefix(1);
  }
  Number value{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::string bounds(RealRange range) {
  return fmt::format("{}{}, {}]", range.is_low_excluded ? '(' : '[', range.low, range.high);
}

Status wrong_count(std::string_view text, IntRange range) {
  if (range.high == std::numeric_limits<std::int64_t>::max()) {
    return error(Code::kInvalidArgument, "want a whole number of at least {}, found {}", range.low,
                 shown(text));
  }
  return error(Code::kInvalidArgument, "want a whole number from {} to {}, found {}", range.low,
               range.high, shown(text));
}

std::int64_t factor_of(char suffix) {
  switch (suffix) {
    case 'k': return 1'000;
    case 'm': return 1'000'000;
    case 'g': return 1'000'000'000;
    case 'K': return std::int64_t{1} << 10;
    case 'M': return std::int64_t{1} << 20;
    case 'G': return std::int64_t{1} << 30;
    default: return 1;
  }
}

std::string scaled(std::int64_t value, const std::array<std::string_view, 5>& units) {
  double rest = static_cast<double>(value);
  std::size_t unit = 0;
  while (rest >= 999.5 && unit + 1 < units.size()) {
    rest /= 1000.0;
    ++unit;
  }
  if (unit == 0) {
    return fmt::format("{}{}", value, units[0]);
  }
  return fmt::format("{:.{}f}{}", rest, rest < 9.995 ? 2 : rest < 99.95 ? 1 : 0, units[unit]);
}

// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const std::size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

Result<float> parse_real(std::string_view text, RealRange range) {
  const std::optional<double> value = whole<double>(text);
  const bool is_inside = value && *value <= range.high &&
                         (range.is_low_excluded ? *value > range.low : *value >= range.low);
  if (!is_inside) {
    return error(Code::kInvalidArgument, "want a number in {}, found {}", bounds(range),
                 shown(text));
  }
  return static_cast<float>(*value);
}

Result<std::int64_t> parse_integer(std::string_view text, IntRange range) {
  const std::optional<std::int64_t> value = whole<std::int64_t>(text);
  if (!value || *value < range.low || *value > range.high) {
    return wrong_count(text, range);
  }
  return *value;
}

Result<std::uint64_t> parse_seed(std::string_view text) {
  const std::optional<std::uint64_t> value = whole<std::uint64_t>(text);
  if (!value) {
    return error(Code::kInvalidArgument, "want a whole number from 0 to 2^64 - 1, found {}",
                 shown(text));
  }
  return *value;
}

Result<std::int64_t> parse_count(std::string_view text, IntRange range) {
  const std::int64_t factor = text.empty() ? 1 : factor_of(text.back());
  const std::string_view digits = factor == 1 ? text : text.substr(0, text.size() - 1);
  const std::optional<std::int64_t> value = whole<std::int64_t>(digits);
  std::int64_t product = 0;
  if (!value || __builtin_mul_overflow(*value, factor, &product) || product < range.low ||
      product > range.high) {
    return wrong_count(text, range);
  }
  return product;
}

Result<std::vector<std::int32_t>> parse_ids(std::string_view text) {
  std::string_view rest = text;
  const auto is_separator = [](char c) {
    return std::string_view(" \t\r\n,[]").find(c) != std::string_view::npos;
  };
  std::vector<std::int32_t> ids;
  while (true) {
    while (!rest.empty() && is_separator(rest.front())) {
      rest.remove_prefix(1);
    }
    if (rest.empty()) {
      break;
    }
    const auto length = static_cast<std::size_t>(
        std::find_if(rest.begin(), rest.end(), is_separator) - rest.begin());
    const std::optional<std::int32_t> id = whole<std::int32_t>(rest.substr(0, length));
    if (!id || *id < 0) {
      return error(Code::kInvalidArgument, "want token ids such as 1,2,3, found {}",
                   shown(rest.substr(0, length)));
    }
    ids.push_back(*id);
    rest.remove_prefix(length);
  }
  if (ids.empty()) {
    return error(Code::kInvalidArgument, "want token ids such as 1,2,3, found {}", shown(text));
  }
  return ids;
}

Result<std::pair<std::int32_t, float>> parse_bias(std::string_view text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::optional<std::int32_t> id = whole<std::int32_t>(text.substr(0, end));
  std::string_view bias = text.substr(end);
  if (!bias.empty() && (bias.front() == '=' || bias.front() == ':')) {
    bias.remove_prefix(1);
  }
  const Result<float> value = parse_real(bias, {-100, 100});
  if (!id || !value) {
    return error(Code::kInvalidArgument, "want ID=BIAS with a bias in [-100, 100], found {}",
                 shown(text));
  }
  return std::pair{*id, *value};
}

Result<std::string> parse_date(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  bool is_date = text.size() == 10;
  for (std::size_t i = 0; is_date && i < text.size(); ++i) {
    is_date = i == 4 || i == 7 ? text[i] == '-' : is_digit(text[i]);
  }
  if (!is_date && !text.empty()) {
    return error(Code::kInvalidArgument, "want a date as YYYY-MM-DD, found {}", shown(text));
  }
  return std::string(text);
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  // A third of the letters may be wrong; of short words, one.
  std::size_t best_edits = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t count = edits(word, candidate);
    if (count < best_edits) {
      best_edits = count;
      best = candidate;
    }
  }
  return best;
}

std::string bytes_text(std::int64_t bytes) {
  return scaled(bytes, {" B", " kB", " MB", " GB", " TB"});
}

std::string count_text(std::int64_t count) { return scaled(count, {"", " k", " M", " B", " T"}); }

std::string ids_text(const std::vector<std::int32_t>& ids) {
  return fmt::format("{}", fmt::join(ids, ","));
}

}  // namespace nibble::cli
