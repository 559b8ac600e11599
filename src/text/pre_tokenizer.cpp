#include "text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/error.h"

namespace nibble::text {

namespace {

std::string message_of(int pcre2_error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(pcre2_error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// A stretch of the text that matched, or one between matches.
struct Segment {
  Piece piece;
  bool is_match = false;
};

// Appends the pieces that a behaviour makes of the stretches of one text, given in order. "Removed"
// keeps what the reference would drop, as a piece of its own.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, std::vector<Piece>& out) : behavior_(behavior), out_(out) {}

  void add(const Segment& segment) {
    if (is_first_ || !is_joined(segment)) {
      out_.push_back(segment.piece);
    } else {
      out_.back().end = segment.piece.end;
    }
    is_first_ = false;
    was_match_ = segment.is_match;
  }

 private:
  bool is_joined(const Segment& segment) const {
    switch (behavior_) {
      case SplitBehavior::kMergedWithPrevious: return segment.is_match && !was_match_;
      case SplitBehavior::kMergedWithNext: return !segment.is_match && was_match_;
      case SplitBehavior::kContiguous: return segment.is_match == was_match_;
      default: return false;
    }
  }

  SplitBehavior behavior_;
  std::vector<Piece>& out_;
  bool is_first_ = true;
  bool was_match_ = false;
};

}  // namespace

void SplitScratch::FreeMatch::operator()(pcre2_match_data* match) const {
  pcre2_match_data_free(match);
}

SplitScratch::SplitScratch() : match_(pcre2_match_data_create(1, nullptr)) {
  NIBBLE_CHECK(match_ != nullptr);
}

void PreTokenizer::FreeCode::operator()(pcre2_code* code) const { pcre2_code_free(code); }

Result<PreTokenizer::Stage> PreTokenizer::compile(const SplitRule& rule) {
  int code = 0;
  PCRE2_SIZE offset = 0;
  Stage stage;
  stage.behavior = rule.behavior;
  stage.invert = rule.invert;
  stage.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rule.pattern.data()),
                                 rule.pattern.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE,
                                 &code, &offset, nullptr));
  if (stage.code == nullptr) {
    return error(Code::kUnsupported, "{}.pattern: PCRE2 refuses it at byte {}: {}", rule.field,
                 offset, message_of(code));
  }
  std::uint32_t can_be_empty = 0;
  pcre2_pattern_info(stage.code.get(), PCRE2_INFO_MATCHEMPTY, &can_be_empty);
  if (can_be_empty != 0) {
    return error(Code::kUnsupported, "{}.pattern: want one that matches no empty text", rule.field);
  }
  // Where the system forbids executable memory, the interpreter gives the same matches.
  stage.has_jit = pcre2_jit_compile(stage.code.get(), PCRE2_JIT_COMPLETE) == 0;
  return stage;
}

Result<PreTokenizer> PreTokenizer::create(const std::vector<SplitRule>& rules) {
  PreTokenizer made;
  for (const SplitRule& rule : rules) {
    NIBBLE_ASSIGN_OR_RETURN(Stage stage, compile(rule));
    made.stages_.push_back(std::move(stage));
  }
  return made;
}

bool PreTokenizer::next_match(const Stage& stage, std::string_view text, std::size_t from,
                              SplitScratch& scratch) {
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  pcre2_match_data* const match = scratch.match_.get();
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (stage.has_jit) {
    found = pcre2_jit_match(stage.code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, match,
                            nullptr);
  }
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    // The interpreter keeps its state on the heap and goes further.
    found = pcre2_match(stage.code.get(), subject, text.size(), from,
                        PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, nullptr);
  }
  return found > 0 || found == 0;
}

void PreTokenizer::split(std::string_view text, SplitScratch& scratch) const {
  scratch.pieces.assign(1, {0, text.size()});
  for (const Stage& stage : stages_) {
    std::swap(scratch.pieces, scratch.previous_);
    scratch.pieces.clear();
    for (const Piece& whole : scratch.previous_) {
      // Each piece is matched as a text of its own: look-around does not see beyond it.
      const std::string_view part = text.substr(whole.begin, whole.end - whole.begin);
      Joiner joiner(stage.behavior, scratch.pieces);
      std::size_t at = 0;
      const auto emit = [&](std::size_t end, bool is_match) {
        if (end > at) {
          joiner.add({{whole.begin + at, whole.begin + end}, is_match != stage.invert});
        }
        at = end;
      };
      while (at < part.size() && next_match(stage, part, at, scratch)) {
        const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(scratch.match_.get());
        const std::size_t begin = bounds[0];
        const std::size_t end = bounds[1];
        emit(begin, false);
        emit(end, true);
      }
      emit(part.size(), false);
    }
  }
}

}  // namespace nibble::text
