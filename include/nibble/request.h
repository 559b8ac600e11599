// What is asked of an engine and what it answers. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "nibble/sampling.h"

namespace nibble {

enum class ChatRole : std::uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool };
enum class ReasoningEffort : std::uint8_t { kLow, kMedium, kHigh };

struct ToolCall {
  std::string id;         ///< chosen by the engine in answers
  std::string name;       ///< without the "functions." prefix
  std::string arguments;  ///< as generated; usually one JSON object, never validated
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content;
  std::string reasoning;             ///< assistant: analysis of that turn, if kept
  std::vector<ToolCall> tool_calls;  ///< assistant
  std::string name;                  ///< tool: function name; may be empty when tool_call_id is set
  std::string tool_call_id;          ///< tool: which call this answers
};

struct Tool {
  std::string name;
  std::string description;
  std::string parameters_json;  ///< JSON schema of the arguments, or empty
  bool is_strict = false;       ///< hold calls to the schema (docs/structured-output.md)
};

/// Which tools may, or must, be called.
struct ToolChoice {
  enum class Kind : std::uint8_t { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;  ///< kNamed: exactly one call, of this tool
};

struct ChatPrompt {
  std::vector<ChatMessage> messages;
  std::vector<Tool> tools;
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;  ///< false: at most one call
  ReasoningEffort effort = ReasoningEffort::kMedium;
  std::string current_date;  ///< YYYY-MM-DD; empty: no date line
};
struct TextPrompt {
  std::string text;  ///< continued as it is; control-token spellings become control tokens
};
struct TokenPrompt {
  std::vector<std::int32_t> ids;
};

/// What the answer has to be: in a chat the final channel, else the whole text. Held by a mask over
/// the tokens; a schema that cannot be held is refused (docs/structured-output.md).
struct ResponseFormat {
  enum class Kind : std::uint8_t { kText, kJsonObject, kJsonSchema };
  Kind kind = Kind::kText;
  std::string schema_json;  ///< kJsonSchema
  std::string name;         ///< kJsonSchema, for the prompt; may be empty
  std::string description;  ///< kJsonSchema, for the prompt; may be empty
};

struct Request {
  std::variant<ChatPrompt, TextPrompt, TokenPrompt> prompt;
  ResponseFormat response_format;
  SamplingParams sampling;
  std::int32_t max_tokens = -1;  ///< -1: until the context is full
  bool max_tokens_must_fit =
      false;                    ///< refuse, rather than end early, when the context is too short
  std::int32_t min_tokens = 0;  ///< no stop before this many
  std::vector<std::string>
      stop;  ///< matched in visible text only, never in reasoning or tool calls
  std::vector<std::int32_t> stop_token_ids;
  bool ignore_eos = false;
  std::int32_t top_logprobs = -1;     ///< -1: none; n: log-probability of each token and the n best
  std::int32_t prompt_logprobs = -1;  ///< likewise for the prompt, which is then computed in full
};

enum class FinishReason : std::uint8_t { kStop, kLength, kToolCalls, kCancelled };

/// What a generated token is a part of.
enum class TokenPart : std::uint8_t {
  kControl,  ///< marks of the format, headers, the token that ended the answer
  kReasoning,
  kContent,
  kToolCall,  ///< its arguments
};

struct TokenLogprob {
  std::int32_t id = 0;
  float logprob = 0.0F;
  std::vector<std::pair<std::int32_t, float>> top;  ///< largest first
  TokenPart part = TokenPart::kContent;
};

/// A piece of an answer, in order of generation.
struct Delta {
  enum class Kind : std::uint8_t {
    kReasoning,
    kContent,
    kToolCallBegin,
    kToolCallArguments,
    kTokens
  };
  Kind kind = Kind::kContent;
  std::string text;              ///< kToolCallBegin: the function's name
  std::int32_t tool_index = -1;  ///< tool calls: 0, 1, ...
  std::string tool_id;           ///< kToolCallBegin
  std::vector<TokenLogprob>
      tokens;  ///< kTokens: one event for each generated token, after its text, when asked for
};

struct Usage {
  std::int32_t prompt_tokens = 0;
  std::int32_t completion_tokens = 0;
  std::int32_t reasoning_tokens = 0;
  std::int32_t cached_tokens = 0;  ///< of the prompt, computed for an earlier request
};

struct Timings {
  double queue_ms = 0.0;
  double prefill_ms = 0.0;  ///< from the start of work to the first token
  double decode_ms = 0.0;   ///< from the first to the last token
};

struct Response {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  std::vector<std::int32_t> ids;              ///< everything generated, stop token included
  std::vector<TokenLogprob> logprobs;         ///< when asked for
  double cumulative_logprob = 0.0;            ///< their sum; the larger, the likelier the answer
  std::vector<TokenLogprob> prompt_logprobs;  ///< when asked for; the first has none (NaN)
  FinishReason finish_reason = FinishReason::kStop;
  std::string stop_string;  ///< the stop string that ended the answer, if one did
  std::uint64_t seed = 0;
  Usage usage;
  Timings timings;
  std::vector<std::string> kernels;  ///< that computed it: rows of `nibble inspect --kernels`
};

}  // namespace nibble
