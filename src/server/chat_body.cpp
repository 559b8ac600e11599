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

// Calls `read` with the fields of each object of an array.
template <typename Read>
void each_object(Fields& fields, const char* name, std::optional<ApiError>& fault, Read read) {
  const Json* list = fields.array(name);
  for (std::size_t i = 0; list != nullptr && i < list->size() && !fault.has_value(); ++i) {
    const std::string path = fmt::format("{}[{}]", fields.path(name), i);
    if (!(*list)[i].is_object()) {
      fields.refuse(
          bad_request(path, fmt::format("{}: want an object, found {}", path, shown((*list)[i]))));
      return;
    }
    Fields one((*list)[i], path + ".", fault);
    read(one);
  }
}

ToolCall read_call(Fields& fields, std::optional<ApiError>& fault) {
  ToolCall call{.id = fields.text("id").value_or("")};
  const Json* function = fields.object("function");
  if (function == nullptr) {
    fields.fail("function", "an object with name and arguments");
    return call;
  }
  Fields inner(*function, fields.path("function."), fault);
  call.name = inner.required_text("name");
  call.arguments = inner.text("arguments").value_or("");
  return call;
}

ChatMessage read_message(Fields& fields, std::optional<ApiError>& fault) {
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
    each_object(fields, "tool_calls", fault,
                [&](Fields& call) { message.tool_calls.push_back(read_call(call, fault)); });
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

Tool read_tool(Fields& fields, std::optional<ApiError>& fault) {
  Tool tool;
  if (fields.required_text("type") != "function") {
    fields.fail("type", "\"function\"");
    return tool;
  }
  const Json* function = fields.object("function");
  if (function == nullptr) {
    fields.fail("function", "an object with a name");
    return tool;
  }
  Fields inner(*function, fields.path("function."), fault);
  tool.name = inner.required_text("name");
  if (!is_tool_name(tool.name)) {
    inner.fail("name", "1 to 64 letters, digits, '_', '-' or '.'");
  }
  tool.description = inner.text("description").value_or("");
  if (const Json* parameters = inner.object("parameters")) {
    tool.parameters_json = dump(*parameters);
  }
  tool.is_strict = inner.boolean("strict").value_or(false);
  return tool;
}

}  // namespace

bool is_tool_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
         });
}

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
  std::optional<ApiError> fault;
  each_object(fields, "messages", fault,
              [&](Fields& one) { prompt.messages.push_back(read_message(one, fault)); });
  if (fault.has_value()) {
    fields.refuse(*fault);
  }
}

void read_tools(Fields& fields, ChatPrompt& prompt) {
  std::optional<ApiError> fault;
  each_object(fields, "tools", fault,
              [&](Fields& one) { prompt.tools.push_back(read_tool(one, fault)); });
  if (fault.has_value()) {
    fields.refuse(*fault);
  }
  fields.refuse_unless_idle("functions", "want tools");
  fields.refuse_unless_idle("function_call", "want tool_choice");
  read_tool_choice(fields, prompt);
}

void read_tool_choice(Fields& fields, ChatPrompt& prompt) {
  std::optional<ApiError> fault;
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
    const auto function = choice->find("function");
    const Json& named = function != choice->end() && function->is_object() ? *function : *choice;
    Fields inner(named, fields.path("tool_choice."), fault);
    prompt.tool_choice = {ToolChoice::Kind::kNamed, inner.required_text("name")};
    if (fault.has_value()) {
      fields.refuse(*fault);
    }
  } else {
    fields.fail("tool_choice", "none, auto, required or a function");
  }
}

void read_template(Fields& fields, ChatPrompt& prompt) {
  prompt.current_date = today();
  std::optional<ApiError> fault;
  const auto read = [&prompt](Fields& from) {
    const auto effort = from.choice("reasoning_effort", {"low", "medium", "high"});
    if (effort.has_value()) {
      prompt.effort = *effort == "low"    ? ReasoningEffort::kLow
                      : *effort == "high" ? ReasoningEffort::kHigh
                                          : ReasoningEffort::kMedium;
    }
  };
  if (const Json* arguments = fields.object("chat_template_kwargs")) {
    Fields inner(*arguments, fields.path("chat_template_kwargs."), fault);
    read(inner);
    prompt.current_date = inner.text("current_date").value_or(prompt.current_date);
  }
  if (fault.has_value()) {
    fields.refuse(*fault);
  }
  read(fields);
}

std::string today() {
  return fmt::format(
      "{:%Y-%m-%d}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

}  // namespace nibble::server
