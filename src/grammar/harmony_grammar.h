// The structure of generated harmony messages as a grammar, with the languages of the answer and of
// the calls in their places. What is permitted where: docs/structured-output.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar.h"
#include "nibble/status.h"
#include "text/harmony.h"

namespace nibble::grammar {

// Control tokens as symbols.
enum HarmonySymbol : Symbol {
  kStartSymbol = kFirstControl,
  kEndSymbol,
  kMessageSymbol,
  kChannelSymbol,
  kConstrainSymbol,
  kReturnSymbol,
  kCallSymbol,
  kStopSymbol,  // any token that ends a raw text
};

std::vector<std::pair<std::int32_t, Symbol>> harmony_controls(const text::HarmonyTokens& tokens);

// What a text has to be.
struct TextFormat {
  enum class Kind : std::uint8_t { kText, kJsonObject, kJsonSchema };
  Kind kind = Kind::kText;
  std::string schema;  // kJsonSchema
};

struct CallableTool {
  std::string name;      // [A-Za-z0-9_.-]{1,64}, without "functions."
  TextFormat arguments;  // kText: one JSON object all the same
};

struct AnswerRules {
  TextFormat answer;                // of the final channel
  std::vector<CallableTool> tools;  // that may be called; none: no calls
  bool must_call = false;           // a call instead of an answer
  bool may_call_again = true;       // further calls in the same answer
};

// Reads the tokens that follow the prompt's START "assistant": any number of analysis messages and,
// where tools may be called and the answer is free text, preambles; then the answer, which ends
// with RETURN, or calls, the last of which ends with CALL. kInvalidArgument as add_json_schema, the
// message beginning with "response_format: " or "tools[i] (name): ", and when a call is demanded
// but no tool may be called.
Result<std::shared_ptr<const Grammar>> harmony_grammar(const AnswerRules& rules);

// Reads one text of the format, then kStopSymbol.
Result<std::shared_ptr<const Grammar>> text_grammar(const TextFormat& format);

}  // namespace nibble::grammar
