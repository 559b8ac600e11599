#include "grammar/harmony_grammar.h"

#include <optional>

#include "base/error.h"
#include "grammar/json_rules.h"
#include "grammar/json_schema.h"

namespace nibble::grammar {
namespace {

Status at_place(const std::string& place, const Status& status) {
  return {status.code(), place + ": " + status.message()};
}

class HarmonyBuilder {
 public:
  HarmonyBuilder() : json_(builder_), root_(0) {}

  Status build(const AnswerRules& rules) {
    if (rules.must_call && rules.tools.empty()) {
      return error(Code::kInvalidArgument,
                   "tool_choice: a call is demanded, but 0 tools may be called");
    }
    const bool has_calls = !rules.tools.empty();
    const StateId behind_role = builder_.start_of(root_);
    const StateId channel = control(behind_role, kChannelSymbol);
    const StateId commentary = builder_.add_state(root_);
    add_reasoning(channel, behind_role);
    if (!rules.must_call) {
      NIBBLE_RETURN_IF_ERROR(add_answer(channel, rules.answer));
    }
    if (!has_calls) {
      return {};
    }
    builder_.add_literal(channel, "commentary", commentary);
    if (rules.answer.kind == TextFormat::Kind::kText) {
      add_message(commentary, behind_role);  // a preamble
    }
    return add_calls(rules, behind_role, commentary);
  }

  Status build_text(const TextFormat& format) {
    NIBBLE_ASSIGN_OR_RETURN(const StateId behind,
                            add_text(builder_.start_of(root_), format, "response_format"));
    builder_.accept(control(behind, kStopSymbol));
    return {};
  }

  Result<std::shared_ptr<const Grammar>> take() { return std::move(builder_).build(); }

 private:
  void control(StateId from, Symbol symbol, StateId to) {
    builder_.add_edge(from, {.low = symbol, .high = symbol, .target = to, .guard = {}});
  }
  StateId control(StateId from, Symbol symbol) {
    const StateId to = builder_.add_state(root_);
    control(from, symbol, to);
    return to;
  }

  // `state` reads any bytes. A loop and not a rule: what a text may be followed by is then known in
  // the state itself, and its mask needs no walk.
  void add_free_text(StateId state) {
    builder_.add_edge(state, {.low = 0, .high = 255, .target = state, .guard = {}});
  }

  Result<RuleId> rule_of(const TextFormat& format, const std::string& place) {
    if (format.kind == TextFormat::Kind::kJsonObject) {
      return json_.any_object();
    }
    Result<RuleId> rule = add_json_schema(builder_, json_, format.schema);
    if (!rule) {
      return at_place(place, rule.error());
    }
    builder_.require(*rule, place);
    return rule;
  }

  // Text of the format from `from` on; returns the state behind it.
  Result<StateId> add_text(StateId from, const TextFormat& format, const std::string& place) {
    if (format.kind == TextFormat::Kind::kText) {
      add_free_text(from);
      return from;
    }
    NIBBLE_ASSIGN_OR_RETURN(const RuleId rule, rule_of(format, place));
    const StateId behind = builder_.add_state(root_);
    builder_.add_call(from, {.rule = rule, .target = behind, .guard = {}});
    return behind;
  }

  // MESSAGE text END START "assistant"
  void add_message(StateId from, StateId behind_role) {
    const StateId body = control(from, kMessageSymbol);
    add_free_text(body);
    builder_.add_literal(control(control(body, kEndSymbol), kStartSymbol), "assistant",
                         behind_role);
  }

  void add_reasoning(StateId channel, StateId behind_role) {
    add_message(builder_.add_literal(channel, "analysis"), behind_role);
  }

  // Nothing, " json" or [" "] CONSTRAIN "json", then MESSAGE. Returns the state behind it.
  StateId add_json_type(StateId from, bool may_be_bare) {
    const StateId body = control(from, kMessageSymbol);
    const StateId type = control(from, kConstrainSymbol);
    const StateId blank = builder_.add_literal(from, " ");
    control(blank, kConstrainSymbol, type);
    const StateId behind = builder_.add_literal(type, "json");
    if (may_be_bare) {
      builder_.add_literal(blank, "json", behind);
    }
    control(behind, kMessageSymbol, body);
    return body;
  }

  Status add_answer(StateId channel, const TextFormat& format) {
    const StateId name = builder_.add_literal(channel, "final");
    const bool is_text = format.kind == TextFormat::Kind::kText;
    const StateId body = is_text ? control(name, kMessageSymbol) : add_json_type(name, false);
    NIBBLE_ASSIGN_OR_RETURN(const StateId behind, add_text(body, format, "response_format"));
    builder_.accept(control(behind, kReturnSymbol));
    return {};
  }

  // The recipient stands behind the role or behind the channel.
  Status add_calls(const AnswerRules& rules, StateId behind_role, StateId commentary) {
    const std::string recipient = " to=functions.";
    const StateId name_first = builder_.add_literal(behind_role, recipient);
    const StateId name_last = builder_.add_literal(commentary, recipient);
    const StateId done = builder_.add_state(root_);
    builder_.accept(done);
    std::optional<StateId> again;  // behind the role of a further call
    if (rules.may_call_again) {
      again = builder_.add_state(root_);
      builder_.add_literal(*again, recipient, name_first);
      const StateId channel = control(*again, kChannelSymbol);
      builder_.add_literal(channel, "commentary" + recipient, name_last);
    }
    for (std::size_t i = 0; i < rules.tools.size(); ++i) {
      const CallableTool& tool = rules.tools[i];
      TextFormat arguments = tool.arguments;
      if (arguments.kind == TextFormat::Kind::kText) {
        arguments.kind = TextFormat::Kind::kJsonObject;
      }
      const StateId header = builder_.add_literal(name_last, tool.name);
      const StateId channel = control(builder_.add_literal(name_first, tool.name), kChannelSymbol);
      builder_.add_literal(channel, "commentary", header);
      NIBBLE_ASSIGN_OR_RETURN(const StateId behind,
                              add_text(add_json_type(header, true), arguments,
                                       fmt::format("tools[{}] ({})", i, tool.name)));
      control(behind, kCallSymbol, done);
      if (again) {
        builder_.add_literal(control(control(behind, kEndSymbol), kStartSymbol), "assistant",
                             *again);
      }
    }
    return {};
  }

  GrammarBuilder builder_;
  JsonRules json_;
  RuleId root_;
};

}  // namespace

std::vector<std::pair<std::int32_t, Symbol>> harmony_controls(const text::HarmonyTokens& tokens) {
  return {{tokens.start, kStartSymbol},
          {tokens.end, kEndSymbol},
          {tokens.message, kMessageSymbol},
          {tokens.channel, kChannelSymbol},
          {tokens.constrain, kConstrainSymbol},
          {tokens.return_, kReturnSymbol},
          {tokens.call, kCallSymbol}};
}

Result<std::shared_ptr<const Grammar>> harmony_grammar(const AnswerRules& rules) {
  HarmonyBuilder builder;
  NIBBLE_RETURN_IF_ERROR(builder.build(rules));
  return builder.take();
}

Result<std::shared_ptr<const Grammar>> text_grammar(const TextFormat& format) {
  HarmonyBuilder builder;
  NIBBLE_RETURN_IF_ERROR(builder.build_text(format));
  return builder.take();
}

}  // namespace nibble::grammar
