#include "harmony_conversations.h"

#include <fstream>
#include <map>

namespace nibble::text {
namespace {

using Json = nlohmann::ordered_json;

std::string text_or_empty(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? "" : it->get<std::string>();
}

FunctionTool tool_of(const Json& json) {
  FunctionTool tool;
  tool.name = json.at("name");
  tool.description = json.at("description");
  const auto parameters = json.find("parameters");
  if (parameters != json.end() && !parameters->is_null()) {
    tool.parameters_json = parameters->dump();
  }
  return tool;
}

std::vector<ToolNamespace> namespaces_of(const Json& content) {
  std::vector<ToolNamespace> out;
  const Json all = content.value("tools", Json::object());
  for (const Json& json : all) {
    ToolNamespace tools;
    tools.name = json.at("name");
    tools.description = text_or_empty(json, "description");
    for (const Json& tool : json.at("tools")) {
      tools.tools.push_back(tool_of(tool));
    }
    out.push_back(std::move(tools));
  }
  return out;
}

SystemContent system_of(const Json& json) {
  const std::map<std::string, Effort> efforts = {
      {"Low", Effort::kLow}, {"Medium", Effort::kMedium}, {"High", Effort::kHigh}};
  SystemContent system;
  system.model_identity = text_or_empty(json, "model_identity");
  system.knowledge_cutoff = text_or_empty(json, "knowledge_cutoff");
  system.current_date = text_or_empty(json, "conversation_start_date");
  system.effort = efforts.at(json.at("reasoning_effort"));
  system.valid_channels = json.at("channel_config").at("valid_channels");
  system.builtin_tools = namespaces_of(json);
  return system;
}

DeveloperContent developer_of(const Json& json) {
  DeveloperContent developer;
  developer.instructions = text_or_empty(json, "instructions");
  for (const ToolNamespace& tools : namespaces_of(json)) {
    developer.functions = tools.tools;
  }
  return developer;
}

Message message_of(const Json& json) {
  const std::map<std::string, Role> roles = {{"system", Role::kSystem},
                                             {"developer", Role::kDeveloper},
                                             {"user", Role::kUser},
                                             {"assistant", Role::kAssistant},
                                             {"tool", Role::kTool}};
  Message message;
  message.role = roles.at(json.at("role"));
  message.name = text_or_empty(json, "name");
  message.recipient = text_or_empty(json, "recipient");
  message.channel = text_or_empty(json, "channel");
  message.content_type = text_or_empty(json, "content_type");
  const Json& content = json.at("content").at(0);
  const std::string type = content.at("type");
  if (type == "system_content") {
    message.system = system_of(content);
  } else if (type == "developer_content") {
    message.developer = developer_of(content);
  } else {
    message.text = content.at("text");
  }
  return message;
}

}  // namespace

std::vector<Message> conversation_of(const Json& conversation) {
  std::vector<Message> out;
  for (const Json& message : conversation.at("messages")) {
    out.push_back(message_of(message));
  }
  return out;
}

Json read_golden(const std::string& name) {
  std::ifstream file(std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/" + name);
  return Json::parse(file);
}

}  // namespace nibble::text
