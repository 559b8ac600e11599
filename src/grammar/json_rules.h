// Rules for JSON values that no schema limits, shared by all schemas of one grammar.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar.h"

namespace nibble::grammar {

// Adds each rule when it is first asked for.
class JsonRules {
 public:
  explicit JsonRules(GrammarBuilder& builder) : builder_(builder) {}

  // Nothing, one blank, or a line feed with up to 40 blanks and tabs: so no answer drowns in white
  // space.
  RuleId white_space();
  RuleId any_value();
  RuleId any_object();
  RuleId any_array();
  RuleId any_number();
  // Any spelling of a string of `least` to `most` characters.
  RuleId string(std::uint32_t least, std::uint32_t most);
  RuleId any_string() { return string(0, kNoLimit); }
  // A new state of `rule`, behind white space.
  StateId skip(StateId from, RuleId rule, Guard guard = {});
  // Makes a fresh rule read what any of the others read.
  void define_one_of(RuleId rule, const std::vector<RuleId>& rules);
  // Exactly these texts.
  RuleId literals(const std::vector<std::string>& texts);

 private:
  void close(RuleId rule, StateId empty, StateId full, std::uint8_t bracket);

  GrammarBuilder& builder_;
  std::optional<RuleId> white_space_, value_, object_, array_, number_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, RuleId> strings_;  // by bounds
};

}  // namespace nibble::grammar
