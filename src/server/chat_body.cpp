#include "server/chat_body.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace nibble::server {
namespace {

std::optional<ChatRole> role_of(const std::string& name) {
  constexpr std::pair<const char*, ChatRole> kRoles[] = {{"system", ChatRole::kSystem},
                                                         {"developer", ChatRole::kDeveloper},
                                                         {"user", ChatRole::kUser},
                                                         {"assistant", ChatRole::kAssistant},
                                                         {"tool", ChatRole::kTool}};
  for (const auto& [known, role] : kRoles) {
    if (name == known) {
      return role;
    }
  }
  return std::nullopt;
}

ToolCall read_call(Fields& fields) {
  ToolCall call{.id = fields.text("id").value_or("")};
  std::optional<Fields> function = fields.inner("function");
  if (!function.has_value()) {
    fields.fail("function", "an object with name and arguments");
    return call;
  }
  call.name = function->required_text("name");
  call.arguments = function->text("arguments").value_or("");
  return call;
}

ChatMessage read_message(Fields& fields) {
  ChatMessage message;
  const std::optional<ChatRole> role = role_of(fields.required_text("role"));
  if (!role.has_value()) {
    fields.fail("role", "system, developer, user, assistant or tool");
    return message;
  }
  message.role = *role;
  message.content = read_content(fields, "content");
  message.name = fields.text("name").value_or("");
  if (*role == ChatRole::kAssistant) {
    message.name.clear();
    message.reasoning =
        fields.text(fields.has("reasoning_content") ? "reasoning_content" : "reasoning")
            .value_or("");
    fields.each_object("tool_calls",
                       [&](Fields& call) { message.tool_calls.push_back(read_call(call)); });
    fields.refuse_unless_idle("function_call", "want tool_calls");
  } else if (*role == ChatRole::kTool) {
    message.tool_call_id = fields.text("tool_call_id").value_or("");
    if (message.tool_call_id.empty() && message.name.empty()) {
      fields.fail("tool_call_id", "the id of a tool call");
    }
  }
  const bool needs_content = *role != ChatRole::kAssistant || message.tool_calls.empty();
  if (needs_content && !fields.has("content")) {
    fields.fail("content", "a string or an array of text parts");
  }
  return message;
}

Tool read_tool(Fields& fields) {
  if (fields.required_text("type") != "function") {
    fields.fail("type", "\"function\"");
    return {};
  }
  std::optional<Fields> function = fields.inner("function");
  if (!function.has_value()) {
    fields.fail("function", "an object with a name");
    return {};
  }
  return read_function(*function, "parameters");
}

bool is_tool_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
         });
}

}  // namespace

std::string read_content(Fields& message, const char* name) {
  const Json* content = message.any(name);
  if (content == nullptr) {
    return "";
  }
  if (content->is_string()) {
    return content->get<std::string>();
  }
  if (!content->is_array()) {
    message.fail(name, "a string or an array of text parts");
    return "";
  }
  std::string out;
  for (std::size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    const std::string path = fmt::format("{}[{}]", message.path(name), i);
    const Json type = part.is_object() ? part.value("type", Json()) : Json();
    const bool is_text = type == "text" || type == "input_text" || type == "output_text";
    if (!is_text || !part.contains("text") || !part["text"].is_string()) {
      message.refuse(bad_request(
          path, fmt::format("{}: want {{\"type\": \"text\", \"text\": ...}}, found {}", path,
                            type.is_string() && !is_text
                                ? "type '" + type.get<std::string>().substr(0, 40) + "'"
                                : shown(part))));
      return "";
    }
    out += part["text"].get_ref<const std::string&>();
  }
  return out;
}

void read_messages(Fields& fields, ChatPrompt& prompt) {
  if (!fields.has("messages")) {
    fields.fail("messages", "an array of at least 1 message");
    return;
  }
  fields.each_object("messages",
                     [&](Fields& one) { prompt.messages.push_back(read_message(one)); });
}

Tool read_function(Fields& fields, const char* schema) {
  Tool tool{.name = fields.required_text("name"),
            .description = fields.text("description").value_or("")};
  if (!is_tool_name(tool.name)) {
    fields.fail("name", "1 to 64 letters, digits, '_', '-' or '.'");
  }
  if (const Json* parameters = fields.object(schema)) {
    tool.parameters_json = dump(*parameters);
  }
  tool.is_strict = fields.boolean("strict").value_or(false);
  return tool;
}

void read_tools(Fields& fields, ChatPrompt& prompt) {
  fields.each_object("tools", [&](Fields& one) { prompt.tools.push_back(read_tool(one)); });
  fields.refuse_unless_idle("functions", "want tools");
  fields.refuse_unless_idle("function_call", "want tool_choice");
  read_tool_choice(fields, prompt);
}

void read_tool_choice(Fields& fields, ChatPrompt& prompt) {
  prompt.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  const Json* choice = fields.any("tool_choice");
  if (choice == nullptr || *choice == "auto") {
    return;
  }
  if (*choice == "none") {
    prompt.tools.clear();
  } else if (*choice == "required") {
    prompt.tool_choice.kind = ToolChoice::Kind::kRequired;
  } else if (choice->is_object()) {
    // The name lies within "function" in chats, beside the type in responses.
    Fields whole = *fields.inner("tool_choice");
    const auto function = choice->find("function");
    const bool is_nested = function != choice->end() && function->is_object();
    Fields named = is_nested ? *whole.inner("function") : whole;
    prompt.tool_choice = {ToolChoice::Kind::kNamed, named.required_text("name")};
  } else {
    fields.fail("tool_choice", "none, auto, required or a function");
  }
}

std::optional<ReasoningEffort> read_effort(Fields& fields, const char* name) {
  const auto effort = fields.choice(name, {"low", "medium", "high"});
  if (!effort.has_value()) {
    return std::nullopt;
  }
  return *effort == "low"    ? ReasoningEffort::kLow
         : *effort == "high" ? ReasoningEffort::kHigh
                             : ReasoningEffort::kMedium;
}

void read_template(Fields& fields, ChatPrompt& prompt) {
  prompt.current_date = today();
  if (std::optional<Fields> inner = fields.inner("chat_template_kwargs")) {
    prompt.effort = read_effort(*inner, "reasoning_effort").value_or(prompt.effort);
    prompt.current_date = inner->text("current_date").value_or(prompt.current_date);
  }
  prompt.effort = read_effort(fields, "reasoning_effort").value_or(prompt.effort);
}

std::string today() {
  return fmt::format(
      "{:%Y-%m-%d}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

}  // namespace nibble::server
