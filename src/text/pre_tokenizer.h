// Cuts text into the pieces inside which byte pairs may merge.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "nibble/status.h"
#include "text/tokenizer_file.h"

// PCRE2's own names for its types.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace nibble::text {

struct Piece {
  std::size_t begin = 0, end = 0;
};

// Memory that calls of split() share. One for each thread.
class SplitScratch {
 public:
  SplitScratch();
  std::vector<Piece> pieces;  // the result

 private:
  friend class PreTokenizer;
  struct FreeMatch {
    void operator()(pcre2_real_match_data_8* match) const;
  };
  std::vector<Piece> previous_;
  std::vector<Piece> matches_;
  std::unique_ptr<pcre2_real_match_data_8, FreeMatch> match_;
};

// Immutable and shared by threads. Pieces cover the text without gaps, whatever the rules are.
class PreTokenizer {
 public:
  // kUnsupported: PCRE2 does not compile a pattern, or it could match the empty string.
  static Result<PreTokenizer> create(const std::vector<SplitRule>& rules);

  // `text` must be valid UTF-8. If a match needs more than PCRE2's limits allow (catastrophic
  // backtracking), what is left of the piece at hand stays one piece.
  void split(std::string_view text, SplitScratch& scratch) const;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  struct Stage {
    std::unique_ptr<pcre2_real_code_8, FreeCode> code;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
    bool has_jit = false;
  };
  static Result<Stage> compile(const SplitRule& rule);
  static bool next_match(const Stage& stage, std::string_view text, std::size_t from,
                         SplitScratch& scratch);

  std::vector<Stage> stages_;
};

}  // namespace nibble::text
