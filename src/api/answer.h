// Turns the token events of one sequence into deltas and a response.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/token_request.h"
#include "nibble/request.h"
#include "text/detokenizer.h"
#include "text/harmony_parser.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace nibble {

using DeltaCallback = std::function<bool(const Delta&)>;

// How the generated tokens are read.
struct AnswerFormat {
  const text::Tokenizer* tokenizer = nullptr;  // null: ids only
  std::optional<text::HarmonyTokens> harmony;  // chat; otherwise plain text
  std::vector<std::int32_t> hidden_ids;        // plain text: stop ids, which are not shown
  bool wants_tokens = false;                   // kTokens deltas
};

class Answer {
 public:
  Answer(const AnswerFormat& format, const Request& request, const DeltaCallback& on_delta);

  // False when generation should end now: cancelled by the callback, or a stop string is complete.
  bool push(const engine::TokenEvent& event);
  // After the last event: flushes, and completes the response. `was_aborted`: the caller gave up
  // waiting.
  Response finish(bool was_aborted);

 private:
  void push_text(std::int32_t token);
  void push_harmony(std::int32_t token);
  void take(const text::ParserEvent& event);
  void begin_call(const text::ParserEvent& event);
  void show(const std::string& text);
  void flush();
  void emit(const Delta& delta);
  bool is_hidden(std::int32_t token) const;
  TokenPart part_of(std::int32_t token, std::optional<text::PartKind> before) const;
  void record(const engine::TokenEvent& event, TokenPart part);

  AnswerFormat format_;
  const DeltaCallback& on_delta_;
  std::optional<text::HarmonyParser> parser_;
  text::Utf8Stream utf8_;
  text::StopStrings stops_;
  std::vector<text::ParserEvent> events_;
  Response response_;
  std::uint64_t call_seed_ = 0;
  std::optional<text::PartKind> part_;  // of the message that is open
  bool is_stopped_ = false;             // by a stop string
  bool is_cancelled_ = false;           // by the callback
  bool wants_logprobs_ = false;
  engine::Finish engine_finish_ = engine::Finish::kNone;
};

}  // namespace nibble
