// Finds the earliest stop string in streamed text, over token borders.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nibble::text {

// The earliest match is the one that is complete first; of several that end together, the longest.
// So the result does not depend on how the text is cut into pieces.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // empty strings are ignored

  // Appends to `out` the text that can be shown. Withholds exactly the longest suffix that is a
  // proper prefix of some stop string. Returns true once a stop string is complete: `out` then ends
  // before the earliest match, later text is discarded, and matched() tells which.
  bool push(std::string_view text, std::string& out);
  // End of generation without a match: releases what is withheld.
  void finish(std::string& out);
  const std::string& matched() const { return matched_; }
  void set_include_match(bool include) { include_match_ = include; }

 private:
  struct Stop {
    explicit Stop(std::string stop);
    bool advance(char byte);  // true: complete

    std::string text;
    std::vector<std::size_t> fallback;  // longest border of each prefix (Knuth-Morris-Pratt)
    std::size_t matched = 0;            // longest prefix that the text so far ends with
  };
  const Stop* advance(char byte);

  std::vector<Stop> stops_;
  std::string held_;
  std::string matched_;
  bool include_match_ = false;
  bool done_ = false;
};

}  // namespace nibble::text
