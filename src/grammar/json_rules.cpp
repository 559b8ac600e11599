#include "grammar/json_rules.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "grammar/number_text.h"

namespace nibble::grammar {
namespace {

constexpr std::uint32_t kMaxIndent = 40;

Edge edge(std::uint8_t low, std::uint8_t high, StateId target) {
  return {.low = low, .high = high, .target = target, .guard = {}};
}

// The inside of a string. `body` is the state between two characters; a character may begin while
// `room` is open, and is counted if `counts`.
class StringBody {
 public:
  StringBody(GrammarBuilder& builder, RuleId rule, StateId body, Guard room, bool counts)
      : builder_(builder), rule_(rule), body_(body), room_(room), counts_(counts) {}

  void build() {
    begin(0x20, 0x21, body_);  // all but controls, '"' and '\'
    begin(0x23, 0x5B, body_);
    begin(0x5D, 0x7F, body_);
    add_utf8();
    const StateId escape = builder_.add_state(rule_);
    begin('\\', '\\', escape);
    for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) {
      const auto byte = static_cast<std::uint8_t>(c);
      builder_.add_edge(escape, edge(byte, byte, body_));
    }
    add_hex(escape);
  }

 private:
  void begin(std::uint8_t low, std::uint8_t high, StateId target) {
    builder_.add_edge(
        body_, {.low = low, .high = high, .target = target, .counts = counts_, .guard = room_});
  }

  // Unicode table 3-7.
  void add_utf8() {
    const StateId last = then(0x80, 0xBF, body_);
    const StateId last_two = then(0x80, 0xBF, last);
    begin(0xC2, 0xDF, last);
    begin(0xE0, 0xE0, then(0xA0, 0xBF, last));
    begin(0xE1, 0xEC, last_two);
    begin(0xED, 0xED, then(0x80, 0x9F, last));
    begin(0xEE, 0xEF, last_two);
    begin(0xF0, 0xF0, then(0x90, 0xBF, last_two));
    begin(0xF1, 0xF3, then(0x80, 0xBF, last_two));
    begin(0xF4, 0xF4, then(0x80, 0x8F, last_two));
  }
  StateId then(std::uint8_t low, std::uint8_t high, StateId target) {
    const StateId state = builder_.add_state(rule_);
    builder_.add_edge(state, edge(low, high, target));
    return state;
  }
  void hex_edges(StateId from, StateId target) {
    builder_.add_edge(from, edge('0', '9', target));
    builder_.add_edge(from, edge('A', 'F', target));
    builder_.add_edge(from, edge('a', 'f', target));
  }
  StateId hex_then(StateId target) {
    const StateId state = builder_.add_state(rule_);
    hex_edges(state, target);
    return state;
  }

  // \uXXXX, surrogates in pairs only; a pair is one character.
  void add_hex(StateId escape) {
    const StateId last = hex_then(body_);
    const StateId last_two = hex_then(last);
    const StateId first = builder_.add_state(rule_);
    builder_.add_edge(escape, edge('u', 'u', first));
    const StateId second = hex_then(last_two);
    builder_.add_edge(first, edge('0', '9', second));
    builder_.add_edge(first, edge('A', 'C', second));
    builder_.add_edge(first, edge('E', 'F', second));
    builder_.add_edge(first, edge('a', 'c', second));
    builder_.add_edge(first, edge('e', 'f', second));
    const StateId behind_d = builder_.add_state(rule_);
    builder_.add_edge(first, edge('D', 'D', behind_d));
    builder_.add_edge(first, edge('d', 'd', behind_d));
    builder_.add_edge(behind_d, edge('0', '7', last_two));
    const StateId low_second = builder_.add_state(rule_);
    builder_.add_edge(low_second, edge('C', 'F', last_two));
    builder_.add_edge(low_second, edge('c', 'f', last_two));
    const StateId low_first = builder_.add_state(rule_);
    builder_.add_edge(low_first, edge('D', 'D', low_second));
    builder_.add_edge(low_first, edge('d', 'd', low_second));
    const StateId high_last_two = hex_then(hex_then(then('\\', '\\', then('u', 'u', low_first))));
    builder_.add_edge(behind_d, edge('8', '9', high_last_two));
    builder_.add_edge(behind_d, edge('A', 'B', high_last_two));
    builder_.add_edge(behind_d, edge('a', 'b', high_last_two));
  }

  GrammarBuilder& builder_;
  RuleId rule_;
  StateId body_;
  Guard room_;
  bool counts_;
};

}  // namespace

RuleId JsonRules::white_space() {
  if (!white_space_) {
    white_space_ = builder_.add_rule();
    const StateId start = builder_.start_of(*white_space_);
    const StateId blank = builder_.add_state(*white_space_);
    const StateId indent = builder_.add_state(*white_space_);
    builder_.add_edge(start, edge(' ', ' ', blank));
    builder_.add_edge(start, edge('\n', '\n', indent));
    const Guard room{.least = 0, .most = kMaxIndent - 1};
    for (const std::uint8_t byte : {' ', '\t'}) {
      builder_.add_edge(
          indent, {.low = byte, .high = byte, .target = indent, .counts = true, .guard = room});
    }
    for (const StateId end : {start, blank, indent}) {
      builder_.accept(end);
    }
  }
  return *white_space_;
}

StateId JsonRules::skip(StateId from, RuleId rule, Guard guard) {
  const StateId to = builder_.add_state(rule);
  builder_.add_call(from, {.rule = white_space(), .target = to, .guard = guard});
  return to;
}

void JsonRules::define_one_of(RuleId rule, const std::vector<RuleId>& rules) {
  const StateId end = builder_.add_state(rule);
  builder_.accept(end);
  for (const RuleId alternative : rules) {
    builder_.add_call(builder_.start_of(rule), {.rule = alternative, .target = end, .guard = {}});
  }
}

RuleId JsonRules::string(std::uint32_t least, std::uint32_t most) {
  const auto [known, is_new] = strings_.try_emplace({least, most}, 0);
  if (!is_new) {
    return known->second;
  }
  const RuleId rule = builder_.add_rule();
  known->second = rule;
  const StateId body = builder_.add_literal(builder_.start_of(rule), "\"");
  const StateId end = builder_.add_state(rule);
  builder_.accept(end);
  builder_.add_edge(
      body, {.low = '"', .high = '"', .target = end, .guard = {.least = least, .most = kNoLimit}});
  if (most > 0) {
    const Guard room{.least = 0, .most = most == kNoLimit ? kNoLimit : most - 1};
    StringBody(builder_, rule, body, room, least > 0 || most < kNoLimit).build();
  }
  return rule;
}

RuleId JsonRules::any_number() {
  if (!number_) {
    number_ = builder_.add_rule();
    const Result<Dfa> dfa = number_text({});
    NIBBLE_CHECK(dfa.has_value());
    builder_.define(*number_, *dfa);
  }
  return *number_;
}

RuleId JsonRules::literals(const std::vector<std::string>& texts) {
  const RuleId rule = builder_.add_rule();
  const StateId end = builder_.add_state(rule);
  builder_.accept(end);
  for (const std::string& text : texts) {
    builder_.add_literal(builder_.start_of(rule), text, end);
  }
  return rule;
}

RuleId JsonRules::any_value() {
  if (!value_) {
    value_ = builder_.add_rule();  // before its parts, which need it
    define_one_of(*value_, {any_object(), any_array(), any_string(), any_number(),
                            literals({"true", "false", "null"})});
  }
  return *value_;
}

RuleId JsonRules::any_object() {
  if (!object_) {
    object_ = builder_.add_rule();
    const RuleId rule = *object_;
    const StateId open = skip(builder_.add_literal(builder_.start_of(rule), "{"), rule);
    const StateId colon = builder_.add_state(rule);
    const StateId value = skip(builder_.add_literal(colon, ":"), rule);
    const StateId next = builder_.add_state(rule);
    const StateId key = skip(builder_.add_literal(next, ","), rule);
    for (const StateId from : {open, key}) {
      builder_.add_call(from, {.rule = any_string(), .target = colon, .guard = {}});
    }
    builder_.add_call(value, {.rule = any_value(), .target = next, .guard = {}});
    close(rule, open, skip(next, rule), '}');
  }
  return *object_;
}

RuleId JsonRules::any_array() {
  if (!array_) {
    array_ = builder_.add_rule();
    const RuleId rule = *array_;
    const StateId open = skip(builder_.add_literal(builder_.start_of(rule), "["), rule);
    const StateId next = builder_.add_state(rule);
    const StateId item = skip(builder_.add_literal(next, ","), rule);
    for (const StateId from : {open, item}) {
      builder_.add_call(from, {.rule = any_value(), .target = next, .guard = {}});
    }
    close(rule, open, skip(next, rule), ']');
  }
  return *array_;
}

void JsonRules::close(RuleId rule, StateId empty, StateId full, std::uint8_t bracket) {
  const StateId end = builder_.add_state(rule);
  builder_.accept(end);
  builder_.add_edge(empty, edge(bracket, bracket, end));
  builder_.add_edge(full, edge(bracket, bracket, end));
}

}  // namespace nibble::grammar
