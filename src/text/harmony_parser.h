// Streaming parser of generated harmony tokens. Cannot fail: every token sequence gives a result,
// no generated text is lost, and every split of the stream gives the same result. Decision table:
// docs/formats/harmony.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"
#include "text/harmony.h"

namespace nibble::text {

enum class Channel : std::uint8_t { kAnalysis, kCommentary, kFinal };

// What a piece of generated text is for the user.
enum class PartKind : std::uint8_t { kReasoning, kContent, kToolCall };

// Events come as kBegin, kText*, kEnd; never nested. kind, channel, recipient and content_type are
// set in all three and stay the same from kBegin to kEnd.
struct ParserEvent {
  enum class Type : std::uint8_t {
    kBegin,  // a new message
    kText,   // more text of the current message
    kEnd,    // the message is complete
  };
  Type type = Type::kText;
  PartKind kind = PartKind::kContent;
  Channel channel = Channel::kFinal;
  // kToolCall only: full name as generated ("functions.f", "python"), matching
  // [A-Za-z0-9_.-]{1,64} after an optional "functions.".
  std::string recipient;
  std::string content_type;  // "json", "code"; without "<|constrain|>"
  std::string text;          // kText: valid UTF-8, not empty
};

// Why the parser wants generation to end.
enum class ParserStop : std::uint8_t { kNone, kReturn, kCall };

class HarmonyParser {
 public:
  // Bytes of a token by its id. The view must live until the next call.
  using TokenBytes = std::function<std::string_view(std::int32_t id)>;

  // Starts inside the header of an assistant message: the prompt ended with START "assistant".
  // `tokenizer` must outlive the parser.
  HarmonyParser(const Tokenizer& tokenizer, HarmonyTokens tokens);
  HarmonyParser(TokenBytes token_bytes, HarmonyTokens tokens);

  // Appends events. Returns kCall for CALL, kReturn for RETURN and end of text, wherever they
  // stand; later tokens are still accepted. Whether there was a tool call is told by the events.
  ParserStop push(std::int32_t id, std::vector<ParserEvent>& out);
  // The stream ended (length, stop or cancel): flushes what is held back, closes the open message
  // and makes the parser ready for another stream.
  void finish(std::vector<ParserEvent>& out);
  // Forgets an aborted stream.
  void reset();
  // Number of oddities repaired since construction, for logs.
  int repairs() const { return repairs_; }

 private:
  enum class State : std::uint8_t { kExpectStart, kHeader, kContent };

  void push_header(std::int32_t id, std::vector<ParserEvent>& out);
  void push_content(std::int32_t id, std::vector<ParserEvent>& out);
  void begin_header(bool has_role);
  // Ends whatever is open without MESSAGE: by a stop token, by START, or by the end of the stream.
  void close(bool is_cut, std::vector<ParserEvent>& out);
  void begin_content(std::vector<ParserEvent>& out);
  void emit(ParserEvent::Type type, std::string text, std::vector<ParserEvent>& out) const;
  void emit_message(Channel channel, std::string text, std::vector<ParserEvent>& out);
  bool is_end(std::int32_t id) const;

  TokenBytes token_bytes_;
  HarmonyTokens tokens_;
  State state_ = State::kHeader;
  bool has_role_ = false;  // of the header being read: opened by START
  std::string header_;     // UTF-8 with the marks of harmony_header.h
  Utf8Stream utf8_;
  ParserEvent current_;
  int repairs_ = 0;
};

}  // namespace nibble::text
