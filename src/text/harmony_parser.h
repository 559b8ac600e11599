// Streaming parser of generated harmony tokens. Cannot fail: every token sequence gives a result,
// no generated text is lost, and every split of the stream gives the same result. Decision table:
// docs/formats/harmony.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/harmony.h"

namespace nibble::text {

enum class Channel : std::uint8_t { kAnalysis, kCommentary, kFinal };

// What a piece of generated text is for the user.
enum class PartKind : std::uint8_t { kReasoning, kContent, kToolCall };

struct ParserEvent {
  enum class Type : std::uint8_t {
    kBegin,  // a new message: kind, channel, recipient, content_type
    kText,   // more text of the current message
    kEnd,    // the message is complete
  };
  Type type = Type::kText;
  PartKind kind = PartKind::kContent;
  Channel channel = Channel::kFinal;
  std::string recipient;  // kToolCall: without "functions." stripped
  std::string content_type;
  std::string text;  // kText: valid UTF-8
};

// Why the parser wants generation to end.
enum class ParserStop : std::uint8_t { kNone, kReturn, kCall };

class HarmonyParser {
 public:
  // Starts inside the header of an assistant message: the prompt ended with START "assistant".
  HarmonyParser(const Tokenizer& tokenizer, HarmonyTokens tokens);

  // Appends events. Returns kReturn or kCall when `id` is a stop token; later tokens are still
  // accepted.
  ParserStop push(std::int32_t id, std::vector<ParserEvent>& out);
  // The stream ended (length, stop or cancel): flushes what is held back and closes the open
  // message.
  void finish(std::vector<ParserEvent>& out);
  // Number of oddities repaired, for logs.
  int repairs() const { return repairs_; }

 private:
  enum class State : std::uint8_t { kExpectStart, kHeader, kContent };
  const Tokenizer* tokenizer_;
  HarmonyTokens tokens_;
  State state_ = State::kHeader;
  std::string header_;
  Utf8Stream utf8_;
  ParserEvent current_;
  bool is_open_ = false;
  int repairs_ = 0;
};

}  // namespace nibble::text
