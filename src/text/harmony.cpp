#include "text/harmony.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "text/harmony_schema.h"

namespace nibble::text {
namespace {

constexpr std::string_view kConstrain = "<|constrain|>";

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kSystem: return "system";
    case Role::kDeveloper: return "developer";
    case Role::kUser: return "user";
    case Role::kAssistant: return "assistant";
    case Role::kTool: break;
  }
  return "tool";
}

std::string_view name_of(Effort effort) {
  switch (effort) {
    case Effort::kLow: return "low";
    case Effort::kMedium: return "medium";
    case Effort::kHigh: break;
  }
  return "high";
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    out += i == 0 ? "" : separator;
    out += parts[i];
  }
  return out;
}

// Lines as `str::lines` of the reference gives them: no empty last line, "\r\n" counts as "\n".
void append_lines(std::string_view text, std::string_view prefix, std::vector<std::string>& out) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (end != std::string_view::npos && line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    out.push_back(std::string(prefix) + std::string(line));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

std::string namespace_text(const ToolNamespace& tools) {
  std::vector<std::string> lines = {"## " + tools.name + "\n"};
  append_lines(tools.description, tools.tools.empty() ? "" : "// ", lines);
  if (tools.tools.empty()) {
    return join(lines, "\n");
  }
  lines.push_back("namespace " + tools.name + " {\n");
  for (const FunctionTool& tool : tools.tools) {
    append_lines(tool.description, "// ", lines);
    const std::string argument = tool.parameters_json.empty()
                                     ? "()"
                                     : "(_: " + schema_to_typescript(tool.parameters_json) + ")";
    lines.push_back("type " + tool.name + " = " + argument + " => any;\n");
  }
  lines.push_back("} // namespace " + tools.name);
  return join(lines, "\n");
}

// Blocks stand in the order of their names.
std::string tools_text(std::vector<ToolNamespace> namespaces) {
  std::stable_sort(namespaces.begin(), namespaces.end(),
                   [](const ToolNamespace& a, const ToolNamespace& b) { return a.name < b.name; });
  std::vector<std::string> sections = {"# Tools"};
  for (const ToolNamespace& tools : namespaces) {
    sections.push_back(namespace_text(tools));
  }
  return join(sections, "\n\n");
}

std::string identity_text(const SystemContent& system) {
  std::vector<std::string> lines;
  if (!system.model_identity.empty()) {
    lines.push_back(system.model_identity);
  }
  if (!system.knowledge_cutoff.empty()) {
    lines.push_back("Knowledge cutoff: " + system.knowledge_cutoff);
  }
  if (!system.current_date.empty()) {
    lines.push_back("Current date: " + system.current_date);
  }
  return join(lines, "\n");
}

std::string system_text(const SystemContent& system, bool has_functions) {
  std::vector<std::string> sections;
  if (std::string identity = identity_text(system); !identity.empty()) {
    sections.push_back(std::move(identity));
  }
  sections.push_back("Reasoning: " + std::string(name_of(system.effort)));
  if (!system.builtin_tools.empty()) {
    sections.push_back(tools_text(system.builtin_tools));
  }
  if (!system.valid_channels.empty()) {
    std::string channels = "# Valid channels: " + join(system.valid_channels, ", ") +
                           ". Channel must be included for every message.";
    if (has_functions) {
      channels += "\nCalls to these tools must go to the commentary channel: 'functions'.";
    }
    sections.push_back(std::move(channels));
  }
  return join(sections, "\n\n");
}

std::string response_format_text(const DeveloperContent& developer) {
  std::vector<std::string> lines;
  append_lines(developer.response_format_description, "// ", lines);
  lines.push_back(developer.response_format_schema);
  return "# Response Formats\n\n## " + developer.response_format_name + "\n\n" + join(lines, "\n");
}

std::string developer_text(const DeveloperContent& developer) {
  std::vector<std::string> sections;
  if (!developer.instructions.empty()) {
    sections.push_back("# Instructions");
    sections.push_back(developer.instructions);
  }
  if (!developer.functions.empty()) {
    sections.push_back(tools_text({{"functions", "", developer.functions}}));
  }
  if (!developer.response_format_name.empty()) {
    sections.push_back(response_format_text(developer));
  }
  return join(sections, "\n\n");
}

class Renderer {
 public:
  Renderer(const Tokenizer& tokenizer, const HarmonyTokens& tokens, bool has_functions)
      : tokenizer_(tokenizer), tokens_(tokens), has_functions_(has_functions) {}

  void add(const Message& message) {
    control(tokens_.start);
    add_header(message);
    control(tokens_.message);
    if (message.system.has_value()) {
      text(system_text(*message.system, has_functions_));
    } else if (message.developer.has_value()) {
      text(developer_text(*message.developer));
    } else {
      text(message.text);
    }
    const bool is_call = message.role == Role::kAssistant && !message.recipient.empty();
    control(is_call ? tokens_.call : tokens_.end);
  }

  void add_next_turn() {
    control(tokens_.start);
    text(name_of(Role::kAssistant));
  }

  std::vector<std::int32_t> take() { return std::move(ids_); }

 private:
  // Each part is encoded on its own, as the reference does: merges never cross parts.
  void add_header(const Message& message) {
    if (message.role == Role::kTool && !message.name.empty()) {
      text(message.name);
    } else {
      text(name_of(message.role));
      if (!message.name.empty()) {
        text(":" + message.name);
      }
    }
    if (!message.recipient.empty() && message.recipient != "all") {
      text(" to=" + message.recipient);
    }
    if (!message.channel.empty()) {
      control(tokens_.channel);
      text(message.channel);
    }
    add_content_type(message.content_type);
  }

  void add_content_type(std::string_view type) {
    if (type.starts_with(kConstrain)) {
      text(" ");
      control(tokens_.constrain);
      text(type.substr(kConstrain.size()));
    } else if (!type.empty()) {
      text(fmt::format(" {}", type));
    }
  }

  void control(std::int32_t id) { ids_.push_back(id); }
  void text(std::string_view words) { tokenizer_.encode_to(words, SpecialTokens::kAsText, ids_); }

  const Tokenizer& tokenizer_;
  const HarmonyTokens& tokens_;
  bool has_functions_;
  std::vector<std::int32_t> ids_;
};

// Number of leading messages in which analysis is outdated.
std::size_t outdated_prefix(const std::vector<Message>& conversation) {
  const auto last_assistant =
      std::find_if(conversation.rbegin(), conversation.rend(),
                   [](const Message& message) { return message.role == Role::kAssistant; });
  if (last_assistant == conversation.rend() || last_assistant->channel != "final") {
    return 0;
  }
  const auto first_final =
      std::find_if(conversation.begin(), conversation.end(),
                   [](const Message& message) { return message.channel == "final"; });
  return static_cast<std::size_t>(first_final - conversation.begin());
}

}  // namespace

Result<HarmonyTokens> HarmonyTokens::find(const Tokenizer& tokenizer) {
  HarmonyTokens tokens;
  const struct {
    std::int32_t& id;
    std::string_view spelling;
  } wanted[] = {
      {tokens.start, "<|start|>"},         {tokens.end, "<|end|>"},
      {tokens.message, "<|message|>"},     {tokens.channel, "<|channel|>"},
      {tokens.constrain, "<|constrain|>"}, {tokens.return_, "<|return|>"},
      {tokens.call, "<|call|>"},
  };
  for (const auto& [id, spelling] : wanted) {
    id = tokenizer.special_id(spelling);
    if (id < 0) {
      return error(Code::kUnsupported,
                   "the harmony chat format needs the token {}, which is not among the added "
                   "tokens of the vocabulary of {}",
                   spelling, tokenizer.vocab_size());
    }
  }
  tokens.end_of_text = tokenizer.special_id("<|endoftext|>");
  return tokens;
}

std::vector<std::int32_t> render(const std::vector<Message>& conversation,
                                 const Tokenizer& tokenizer, const HarmonyTokens& tokens,
                                 RenderFor purpose) {
  const bool has_functions =
      std::any_of(conversation.begin(), conversation.end(), [](const Message& message) {
        return message.developer.has_value() && !message.developer->functions.empty();
      });
  Renderer renderer(tokenizer, tokens, has_functions);
  const std::size_t outdated = purpose == RenderFor::kVerbatim ? 0 : outdated_prefix(conversation);
  for (std::size_t i = 0; i < conversation.size(); ++i) {
    if (i >= outdated || conversation[i].channel != "analysis") {
      renderer.add(conversation[i]);
    }
  }
  if (purpose == RenderFor::kCompletion) {
    renderer.add_next_turn();
  }
  return renderer.take();
}

}  // namespace nibble::text
