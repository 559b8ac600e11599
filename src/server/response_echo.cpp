#include "server/response_echo.h"

namespace nibble::server {
namespace {

const char* effort_name(ReasoningEffort effort) {
  switch (effort) {
    case ReasoningEffort::kLow: return "low";
    case ReasoningEffort::kMedium: break;
    case ReasoningEffort::kHigh: return "high";
  }
  return "medium";
}

Json or_default(const Json& object, const char* name, const Json& value) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? value : *found;
}

// With every field that the client's types want, given or not.
Json echoed_tools(const Json& body) {
  Json out = Json::array();
  for (const Json& tool : or_default(body, "tools", Json::array())) {
    out.push_back({{"type", "function"},
                   {"name", tool.at("name")},
                   {"description", or_default(tool, "description", nullptr)},
                   {"parameters", or_default(tool, "parameters", nullptr)},
                   {"strict", or_default(tool, "strict", false)}});
  }
  return out;
}

}  // namespace

Json echoed(const Json& body, const ChatPrompt& prompt, const std::string& model) {
  const auto given = [&body](const char* name, const Json& value) {
    return or_default(body, name, value);
  };
  const Json format = {{"type", "text"}};
  return {{"instructions", given("instructions", nullptr)},
          {"max_output_tokens", given("max_output_tokens", nullptr)},
          {"max_tool_calls", nullptr},
          {"metadata", given("metadata", Json::object())},
          {"model", model},
          {"parallel_tool_calls", prompt.parallel_tool_calls},
          {"previous_response_id", given("previous_response_id", nullptr)},
          {"prompt_cache_key", given("prompt_cache_key", nullptr)},
          {"reasoning", {{"effort", effort_name(prompt.effort)}, {"summary", nullptr}}},
          {"safety_identifier", given("safety_identifier", nullptr)},
          {"service_tier", "default"},
          {"store", given("store", true)},
          {"temperature", given("temperature", nullptr)},
          {"text", {{"format", or_default(given("text", Json::object()), "format", format)}}},
          {"tool_choice", prompt.tool_choice.kind == ToolChoice::Kind::kNamed
                              ? Json({{"type", "function"}, {"name", prompt.tool_choice.name}})
                              : given("tool_choice", "auto")},
          {"tools", echoed_tools(body)},
          {"top_logprobs", 0},
          {"top_p", given("top_p", nullptr)},
          {"truncation", "disabled"},
          {"user", given("user", nullptr)}};
}

}  // namespace nibble::server
