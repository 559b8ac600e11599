#include "api/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <utility>

namespace nibble {
namespace {

constexpr std::string_view kFunctions = "functions.";

std::string function_name(const std::string& recipient) {
  return recipient.starts_with(kFunctions) ? recipient.substr(kFunctions.size()) : recipient;
}

}  // namespace

Answer::Answer(const AnswerFormat& format, const Request& request, const DeltaCallback& on_delta)
    : format_(format),
      on_delta_(on_delta),
      stops_(request.stop),
      wants_logprobs_(request.top_logprobs >= 0) {
  if (format_.harmony.has_value()) {
    parser_.emplace(*format_.tokenizer, *format_.harmony);
  }
  std::random_device device;
  call_seed_ = (std::uint64_t{device()} << 32U) | device();
}

bool Answer::push(const engine::TokenEvent& event) {
  engine_finish_ = event.finish;
  if (event.token >= 0) {
    const std::optional<text::PartKind> before = part_;
    if (parser_.has_value()) {
      push_harmony(event.token);
    } else {
      push_text(event.token);
    }
    record(event, part_of(event.token, before));
    const bool is_reasoning =
        before == text::PartKind::kReasoning || part_ == text::PartKind::kReasoning;
    response_.usage.reasoning_tokens += is_reasoning ? 1 : 0;
  }
  return !is_stopped_ && !is_cancelled_;
}

// `before`: the message that was open when the token came. A token may open one, or close it.
TokenPart Answer::part_of(std::int32_t token, std::optional<text::PartKind> before) const {
  if (!parser_.has_value()) {
    return is_hidden(token) ? TokenPart::kControl : TokenPart::kContent;
  }
  const std::optional<text::PartKind> part = part_.has_value() ? part_ : before;
  if (!part.has_value() || format_.tokenizer->is_special(token)) {
    return TokenPart::kControl;
  }
  switch (*part) {
    case text::PartKind::kReasoning: return TokenPart::kReasoning;
    case text::PartKind::kContent: return TokenPart::kContent;
    case text::PartKind::kToolCall: return TokenPart::kToolCall;
  }
  return TokenPart::kControl;
}

void Answer::record(const engine::TokenEvent& event, TokenPart part) {
  response_.ids.push_back(event.token);
  ++response_.usage.completion_tokens;
  TokenLogprob logprob{
      .id = event.token, .logprob = event.logprob.logprob, .top = event.logprob.top, .part = part};
  if (format_.wants_tokens) {
    emit({.kind = Delta::Kind::kTokens, .tokens = {logprob}});
  }
  if (wants_logprobs_) {
    response_.cumulative_logprob += logprob.logprob;
    response_.logprobs.push_back(std::move(logprob));
  }
}

bool Answer::is_hidden(std::int32_t token) const {
  return std::find(format_.hidden_ids.begin(), format_.hidden_ids.end(), token) !=
         format_.hidden_ids.end();
}

void Answer::push_text(std::int32_t token) {
  if (format_.tokenizer == nullptr || is_hidden(token)) {
    return;
  }
  std::string text;
  utf8_.push(format_.tokenizer->token_bytes(token), text);
  show(text);
}

void Answer::push_harmony(std::int32_t token) {
  events_.clear();
  (void)parser_->push(token, events_);  // the engine knows the stop ids
  for (const text::ParserEvent& event : events_) {
    take(event);
  }
}

void Answer::take(const text::ParserEvent& event) {
  if (is_stopped_ || is_cancelled_) {
    return;
  }
  using Type = text::ParserEvent::Type;
  part_ = event.type == Type::kEnd ? std::nullopt : std::optional(event.kind);
  if (event.type == Type::kBegin && event.kind == text::PartKind::kToolCall) {
    begin_call(event);
  }
  const bool is_further_content = event.type == Type::kBegin &&
                                  event.kind == text::PartKind::kContent &&
                                  !response_.content.empty();
  if (is_further_content) {
    show("\n\n");  // a preamble and the answer are two messages
  }
  if (event.type != Type::kText) {
    return;
  }
  switch (event.kind) {
    case text::PartKind::kContent: show(event.text); break;
    case text::PartKind::kReasoning:
      response_.reasoning += event.text;
      emit({.kind = Delta::Kind::kReasoning, .text = event.text});
      break;
    case text::PartKind::kToolCall:
      response_.tool_calls.back().arguments += event.text;
      emit({.kind = Delta::Kind::kToolCallArguments,
            .text = event.text,
            .tool_index = static_cast<std::int32_t>(response_.tool_calls.size()) - 1});
      break;
  }
}

void Answer::begin_call(const text::ParserEvent& event) {
  const std::size_t index = response_.tool_calls.size();
  response_.tool_calls.push_back(
      {.id = fmt::format("call_{:016x}{:02x}", call_seed_, index & 0xFFU),
       .name = function_name(event.recipient)});
  const ToolCall& call = response_.tool_calls.back();
  emit({.kind = Delta::Kind::kToolCallBegin,
        .text = call.name,
        .tool_index = static_cast<std::int32_t>(index),
        .tool_id = call.id});
}

// Visible text goes through the stop strings.
void Answer::show(const std::string& text) {
  if (is_cancelled_) {
    return;
  }
  std::string shown;
  is_stopped_ = stops_.push(text, shown);
  if (!shown.empty()) {
    response_.content += shown;
    emit({.kind = Delta::Kind::kContent, .text = std::move(shown)});
  }
}

// Nothing follows the delta that cancelled.
void Answer::emit(const Delta& delta) {
  is_cancelled_ = is_cancelled_ || (on_delta_ && !on_delta_(delta));
}

// What the decoders hold back. After a cancel nothing: the response is what was delivered.
void Answer::flush() {
  if (is_stopped_ || is_cancelled_) {
    return;
  }
  if (parser_.has_value()) {
    events_.clear();
    parser_->finish(events_);
    for (const text::ParserEvent& event : events_) {
      take(event);
    }
  } else {
    std::string text;
    utf8_.finish(text);
    show(text);
  }
  if (is_stopped_ || is_cancelled_) {
    return;
  }
  std::string held;
  stops_.finish(held);
  if (!held.empty()) {
    response_.content += held;
    emit({.kind = Delta::Kind::kContent, .text = std::move(held)});
  }
}

Response Answer::finish(bool was_aborted) {
  flush();
  response_.stop_string = stops_.matched();
  if (is_stopped_) {
    response_.finish_reason = FinishReason::kStop;
  } else if (is_cancelled_ || was_aborted) {
    response_.finish_reason = FinishReason::kCancelled;
  } else if (engine_finish_ == engine::Finish::kLength) {
    response_.finish_reason = FinishReason::kLength;
  } else {
    response_.finish_reason =
        response_.tool_calls.empty() ? FinishReason::kStop : FinishReason::kToolCalls;
  }
  return std::move(response_);
}

}  // namespace nibble
