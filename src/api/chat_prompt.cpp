#include "api/chat_prompt.h"

#include <map>
#include <string>

#include "base/error.h"

namespace nibble {
namespace {

text::Effort effort_of(ReasoningEffort effort) {
  switch (effort) {
    case ReasoningEffort::kLow: return text::Effort::kLow;
    case ReasoningEffort::kMedium: return text::Effort::kMedium;
    case ReasoningEffort::kHigh: return text::Effort::kHigh;
  }
  return text::Effort::kMedium;
}

text::Message system_message(const ChatPrompt& prompt) {
  text::SystemContent content;
  content.current_date = prompt.current_date;
  content.effort = effort_of(prompt.effort);
  return {.role = text::Role::kSystem, .system = std::move(content)};
}

class ConversationBuilder {
 public:
  ConversationBuilder(const ChatPrompt& prompt, const ResponseFormat& format) {
    out_.push_back(system_message(prompt));
    text::DeveloperContent developer;
    if (format.kind == ResponseFormat::Kind::kJsonSchema) {
      developer.response_format_name = format.name.empty() ? "response" : format.name;
      developer.response_format_description = format.description;
      developer.response_format_schema = format.schema_json;
    }
    for (const ChatMessage& message : prompt.messages) {
      if (is_instruction(message) && !message.content.empty()) {
        developer.instructions += developer.instructions.empty() ? "" : "\n\n";
        developer.instructions += message.content;
      }
    }
    for (const Tool& tool : prompt.tools) {
      developer.functions.push_back({tool.name, tool.description, tool.parameters_json});
    }
    const bool is_empty = developer.instructions.empty() && developer.functions.empty() &&
                          developer.response_format_name.empty();
    if (!is_empty) {
      out_.push_back({.role = text::Role::kDeveloper, .developer = std::move(developer)});
    }
  }

  Status add(const ChatMessage& message, std::size_t index) {
    switch (message.role) {
      case ChatRole::kSystem:
      case ChatRole::kDeveloper: return {};  // taken by the constructor
      case ChatRole::kUser:
        out_.push_back({.role = text::Role::kUser, .name = message.name, .text = message.content});
        return {};
      case ChatRole::kAssistant: return add_assistant(message, index);
      case ChatRole::kTool: return add_tool_result(message, index);
    }
    return {};
  }

  std::vector<text::Message> take() { return std::move(out_); }

 private:
  static bool is_instruction(const ChatMessage& message) {
    return message.role == ChatRole::kSystem || message.role == ChatRole::kDeveloper;
  }

  Status add_assistant(const ChatMessage& message, std::size_t index) {
    const auto add_text = [&](const char* channel, const std::string& text) {
      if (!text.empty()) {
        out_.push_back({.role = text::Role::kAssistant, .channel = channel, .text = text});
      }
    };
    add_text("analysis", message.reasoning);
    // Text beside a call is a preamble for the user, not the answer.
    add_text(message.tool_calls.empty() ? "final" : "commentary", message.content);
    for (const ToolCall& call : message.tool_calls) {
      if (call.name.empty()) {
        return error(Code::kInvalidArgument, "messages[{}]: a tool call without a name", index);
      }
      names_[call.id] = call.name;
      out_.push_back({.role = text::Role::kAssistant,
                      .recipient = "functions." + call.name,
                      .channel = "commentary",
                      .content_type = "<|constrain|>json",
                      .text = call.arguments});
    }
    return {};
  }

  Status add_tool_result(const ChatMessage& message, std::size_t index) {
    std::string name = message.name;
    if (name.empty()) {
      const auto call = names_.find(message.tool_call_id);
      if (call == names_.end()) {
        return error(Code::kInvalidArgument,
                     "messages[{}]: tool_call_id '{}' answers no tool call of an earlier message",
                     index, message.tool_call_id);
      }
      name = call->second;
    }
    out_.push_back({.role = text::Role::kTool,
                    .name = "functions." + name,
                    .recipient = "assistant",
                    .channel = "commentary",
                    .text = message.content});
    return {};
  }

  std::vector<text::Message> out_;
  std::map<std::string, std::string> names_;  // of calls, by id
};

}  // namespace

Result<std::vector<text::Message>> harmony_conversation(const ChatPrompt& prompt,
                                                        const ResponseFormat& format) {
  if (prompt.messages.empty()) {
    return error(Code::kInvalidArgument, "messages: want at least 1, found 0");
  }
  for (std::size_t index = 0; index < prompt.tools.size(); ++index) {
    if (prompt.tools[index].name.empty()) {
      return error(Code::kInvalidArgument, "tools[{}]: a tool without a name", index);
    }
  }
  ConversationBuilder builder(prompt, format);
  for (std::size_t index = 0; index < prompt.messages.size(); ++index) {
    NIBBLE_RETURN_IF_ERROR(builder.add(prompt.messages[index], index));
  }
  return builder.take();
}

}  // namespace nibble
