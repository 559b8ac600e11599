// Values as people type them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nibble/status.h"

namespace nibble::cli {

// Bounds of a number. Messages name them as "[0, 1]" or "(0, 1]".
struct RealRange {
  double low;
  double high;
  bool is_low_excluded = false;
};
struct IntRange {
  std::int64_t low;
  std::int64_t high;
};

// Each message reads "want ..., found ...".
Result<float> parse_real(std::string_view text, RealRange range);
Result<std::int64_t> parse_integer(std::string_view text, IntRange range);
Result<std::uint64_t> parse_seed(std::string_view text);
// A count with an optional suffix: 8k is 8,000, 8K is 8,192; m, M, g, G likewise.
Result<std::int64_t> parse_count(std::string_view text, IntRange range);
// Ids between commas, blanks or both, in brackets or not. At least one.
Result<std::vector<std::int32_t>> parse_ids(std::string_view text);
// ID=BIAS, ID:BIAS, or llama.cpp's ID+BIAS and ID-BIAS; the bias in [-100, 100].
Result<std::pair<std::int32_t, float>> parse_bias(std::string_view text);
// Empty, or YYYY-MM-DD.
Result<std::string> parse_date(std::string_view text);

// The candidate that `word` is most likely a misspelling of; empty if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "19.3 MB": three digits, decimal units.
std::string bytes_text(std::int64_t bytes);
// "20.9 B" for numbers of parameters.
std::string count_text(std::int64_t count);
// "1,2,3".
std::string ids_text(const std::vector<std::int32_t>& ids);

}  // namespace nibble::cli
