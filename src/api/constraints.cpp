#include "api/constraints.h"

#include <algorithm>

#include "base/error.h"
#include "text/harmony.h"
#include "text/harmony_header.h"

namespace nibble {
namespace {

using grammar::TextFormat;

class GrammarMask : public engine::TokenMask {
 public:
  explicit GrammarMask(std::shared_ptr<grammar::CompiledGrammar> compiled)
      : matcher_(std::move(compiled)) {}

  bool mask(std::span<std::uint32_t> bits) override {
    matcher_.mask(bits);
    return true;
  }
  Status accept(std::int32_t token) override { return matcher_.accept(token); }

 private:
  grammar::Matcher matcher_;
};

TextFormat text_format(const ResponseFormat& format) {
  switch (format.kind) {
    case ResponseFormat::Kind::kText: return {};
    case ResponseFormat::Kind::kJsonObject: return {TextFormat::Kind::kJsonObject, {}};
    case ResponseFormat::Kind::kJsonSchema:
      return {TextFormat::Kind::kJsonSchema, format.schema_json};
  }
  return {};
}

// A strict tool without parameters takes none.
TextFormat arguments_of(const Tool& tool) {
  if (!tool.is_strict) {
    return {TextFormat::Kind::kJsonObject, {}};
  }
  return {TextFormat::Kind::kJsonSchema,
          tool.parameters_json.empty() ? R"({"type": "object", "additionalProperties": false})"
                                       : tool.parameters_json};
}

// The tools that may be called.
Result<std::vector<grammar::CallableTool>> callable(const ChatPrompt& chat) {
  const ToolChoice& choice = chat.tool_choice;
  std::vector<grammar::CallableTool> tools;
  if (choice.kind == ToolChoice::Kind::kNone) {
    return tools;
  }
  for (std::size_t i = 0; i < chat.tools.size(); ++i) {
    const Tool& tool = chat.tools[i];
    if (choice.kind == ToolChoice::Kind::kNamed && tool.name != choice.name) {
      continue;
    }
    if (!text::is_tool_name(tool.name) || tool.name.starts_with("functions.")) {
      return error(Code::kInvalidArgument,
                   "tools[{}]: want a name of 1 to 64 letters, digits, '_', '-' or '.', found '{}'",
                   i, tool.name);
    }
    tools.push_back({tool.name, arguments_of(tool)});
  }
  if (choice.kind == ToolChoice::Kind::kNamed && tools.empty()) {
    return error(Code::kInvalidArgument, "tool_choice: want one of the {} tools, found '{}'",
                 chat.tools.size(), choice.name);
  }
  if (choice.kind == ToolChoice::Kind::kRequired && tools.empty()) {
    return error(Code::kInvalidArgument, "tool_choice: a call is required, but there are 0 tools");
  }
  return tools;
}

bool is_free(const ChatPrompt& chat, const ResponseFormat& format) {
  const bool has_strict = std::any_of(chat.tools.begin(), chat.tools.end(),
                                      [](const Tool& tool) { return tool.is_strict; });
  const bool has_free_choice =
      chat.tool_choice.kind == ToolChoice::Kind::kAuto ||
      (chat.tool_choice.kind == ToolChoice::Kind::kNone && chat.tools.empty());
  const bool has_free_calls = chat.tools.empty() || (!has_strict && chat.parallel_tool_calls);
  return format.kind == ResponseFormat::Kind::kText && has_free_choice && has_free_calls;
}

void append(const TextFormat& format, std::string& key) {
  key +=
      fmt::format("{}:{}:{};", static_cast<int>(format.kind), format.schema.size(), format.schema);
}

std::string key_of(const ConstraintRules& rules) {
  std::string key = fmt::format("{}{}{};", int{rules.is_chat}, int{rules.answer.must_call},
                                int{rules.answer.may_call_again});
  append(rules.answer.answer, key);
  for (const grammar::CallableTool& tool : rules.answer.tools) {
    key += tool.name + ';';
    append(tool.arguments, key);
  }
  return key;
}

}  // namespace

Result<std::optional<ConstraintRules>> constraint_rules(const Request& request) {
  const auto* chat = std::get_if<ChatPrompt>(&request.prompt);
  ConstraintRules rules{.is_chat = chat != nullptr,
                        .answer = {.answer = text_format(request.response_format)}};
  if (chat == nullptr) {
    return request.response_format.kind == ResponseFormat::Kind::kText
               ? std::optional<ConstraintRules>()
               : std::move(rules);
  }
  if (is_free(*chat, request.response_format)) {
    return std::optional<ConstraintRules>();
  }
  const ToolChoice::Kind choice = chat->tool_choice.kind;
  NIBBLE_ASSIGN_OR_RETURN(rules.answer.tools, callable(*chat));
  rules.answer.must_call =
      choice == ToolChoice::Kind::kRequired || choice == ToolChoice::Kind::kNamed;
  rules.answer.may_call_again = chat->parallel_tool_calls && choice != ToolChoice::Kind::kNamed;
  return std::optional<ConstraintRules>(std::move(rules));
}

Result<std::shared_ptr<const grammar::TokenTrie>> Constraints::trie_of(
    const text::Tokenizer& tokenizer) {
  const std::lock_guard lock(mutex_);
  if (trie_ == nullptr) {
    NIBBLE_ASSIGN_OR_RETURN(
        grammar::TokenTrie trie,
        grammar::TokenTrie::create(tokenizer.vocab_size(), [&](std::int32_t id) {
          return tokenizer.is_special(id) ? std::string_view() : tokenizer.token_bytes(id);
        }));
    trie_ = std::make_shared<const grammar::TokenTrie>(std::move(trie));
  }
  return trie_;
}

Result<Constraints::Compiled> Constraints::compile(const ConstraintRules& rules,
                                                   const text::Tokenizer& tokenizer,
                                                   const std::vector<std::int32_t>& eos_ids) {
  grammar::Vocabulary vocabulary;
  NIBBLE_ASSIGN_OR_RETURN(vocabulary.trie, trie_of(tokenizer));
  std::shared_ptr<const grammar::Grammar> language;
  if (rules.is_chat) {
    NIBBLE_ASSIGN_OR_RETURN(const text::HarmonyTokens control,
                            text::HarmonyTokens::find(tokenizer));
    vocabulary.controls = grammar::harmony_controls(control);
    NIBBLE_ASSIGN_OR_RETURN(language, grammar::harmony_grammar(rules.answer));
  } else {
    for (const std::int32_t id : eos_ids) {
      vocabulary.controls.emplace_back(id, grammar::kStopSymbol);
    }
    NIBBLE_ASSIGN_OR_RETURN(language, grammar::text_grammar(rules.answer.answer));
  }
  return std::make_shared<grammar::CompiledGrammar>(
      language, std::make_shared<const grammar::Vocabulary>(std::move(vocabulary)), kMaxMaskBytes);
}

Constraints::Compiled Constraints::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [&](const auto& entry) { return entry.first == key; });
  if (found == kept_.end()) {
    return nullptr;
  }
  kept_.splice(kept_.begin(), kept_, found);
  return kept_.front().second;
}

void Constraints::keep(const std::string& key, const Compiled& compiled) {
  const std::lock_guard lock(mutex_);
  kept_.emplace_front(key, compiled);
  if (kept_.size() > kMaxGrammars) {
    kept_.pop_back();
  }
}

Result<Constraint> Constraints::get(const ConstraintRules& rules, const text::Tokenizer& tokenizer,
                                    const std::vector<std::int32_t>& eos_ids) {
  const std::string key = key_of(rules);
  Compiled compiled = find(key);
  if (compiled == nullptr) {
    NIBBLE_ASSIGN_OR_RETURN(compiled, compile(rules, tokenizer, eos_ids));
    keep(key, compiled);
  }
  Constraint out{.mask = std::make_shared<GrammarMask>(compiled), .end_ids = {}};
  for (const auto& [id, symbol] : compiled->vocabulary().controls) {
    const bool is_end = symbol == grammar::kReturnSymbol || symbol == grammar::kCallSymbol ||
                        symbol == grammar::kStopSymbol;
    if (is_end) {
      out.end_ids.push_back(id);
    }
  }
  return out;
}

}  // namespace nibble
