// The harmony chat format of gpt-oss: conversation to prompt ids. Grammar and rules:
// docs/formats/harmony.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nibble/status.h"
#include "text/tokenizer.h"

namespace nibble::text {

enum class Role : std::uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool };
enum class Effort : std::uint8_t { kLow, kMedium, kHigh };

struct FunctionTool {
  std::string name;
  std::string description;
  std::string parameters_json;  // JSON schema, or empty
};

// A block of the system message for a tool that is built into the model ("browser", "python").
struct ToolNamespace {
  std::string name;
  std::string description;
  std::vector<FunctionTool> tools;
};

struct SystemContent {
  std::string model_identity = "You are ChatGPT, a large language model trained by OpenAI.";
  std::string knowledge_cutoff = "2024-06";
  std::string current_date;  // YYYY-MM-DD; empty: no line
  Effort effort = Effort::kMedium;
  std::vector<ToolNamespace> builtin_tools;
  std::vector<std::string> valid_channels = {"analysis", "commentary", "final"};
};

struct DeveloperContent {
  std::string instructions;             // empty: no section
  std::vector<FunctionTool> functions;  // "functions" namespace
  std::string response_format_name;     // structured output: empty name, no section
  std::string response_format_description;
  std::string response_format_schema;  // JSON
};

// One message. `system` and `developer` hold the structured contents of those roles; if absent,
// `text` is used.
struct Message {
  Role role = Role::kUser;
  std::string name;          // tool results: full tool name, e.g. "functions.get_weather";
                             // other roles: optional, rendered as "role:name"
  std::string recipient;     // "to=", empty: none
  std::string channel;       // empty: none
  std::string content_type;  // "json", "<|constrain|>json", empty: none
  std::string text;
  std::optional<SystemContent> system;
  std::optional<DeveloperContent> developer;
};

// Ids of the control tokens, looked up in the tokenizer file.
struct HarmonyTokens {
  std::int32_t start = -1, end = -1, message = -1, channel = -1, constrain = -1, return_ = -1,
               call = -1;
  std::int32_t end_of_text = -1;  // -1 when the vocabulary has none

  // kUnsupported, naming the first token that the vocabulary lacks.
  static Result<HarmonyTokens> find(const Tokenizer& tokenizer);
};

enum class RenderFor : std::uint8_t {
  kCompletion,  // outdated analysis dropped, START "assistant" at the end
  kHistory,     // outdated analysis dropped
  kVerbatim,    // every message as it stands
};

// Analysis is outdated if the last assistant message is final and the analysis stands before the
// first final message. Only the renderer makes control ids: text that spells a control token stays
// text (the one exception is a content type that begins with "<|constrain|>"). Throws nothing; a
// function schema that is not a JSON object is rendered as `any`.
std::vector<std::int32_t> render(const std::vector<Message>& conversation,
                                 const Tokenizer& tokenizer, const HarmonyTokens& tokens,
                                 RenderFor purpose);

}  // namespace nibble::text
