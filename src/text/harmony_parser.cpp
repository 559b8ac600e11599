#include "text/harmony_parser.h"

#include <utility>

#include "text/harmony_header.h"

namespace nibble::text {
namespace {

PartKind kind_of(Channel channel) {
  return channel == Channel::kAnalysis ? PartKind::kReasoning : PartKind::kContent;
}

}  // namespace

HarmonyParser::HarmonyParser(const Tokenizer& tokenizer, HarmonyTokens tokens)
    : HarmonyParser([&tokenizer](std::int32_t id) { return tokenizer.token_bytes(id); }, tokens) {}

HarmonyParser::HarmonyParser(TokenBytes token_bytes, HarmonyTokens tokens)
    : token_bytes_(std::move(token_bytes)), tokens_(tokens) {}

bool HarmonyParser::is_end(std::int32_t id) const {
  return id == tokens_.end || id == tokens_.return_ || id == tokens_.call ||
         (id == tokens_.end_of_text && id >= 0);
}

ParserStop HarmonyParser::push(std::int32_t id, std::vector<ParserEvent>& out) {
  if (is_end(id)) {
    repairs_ += state_ == State::kContent ? 0 : 1;
    close(/*is_cut=*/false, out);
    state_ = State::kExpectStart;
    if (id == tokens_.end) {
      return ParserStop::kNone;
    }
    return id == tokens_.call ? ParserStop::kCall : ParserStop::kReturn;
  }
  if (id == tokens_.start) {
    repairs_ += state_ == State::kExpectStart ? 0 : 1;
    close(/*is_cut=*/false, out);
    begin_header(/*has_role=*/true);
  } else if (state_ == State::kContent) {
    push_content(id, out);
  } else {
    if (state_ == State::kExpectStart) {  // START is missing
      ++repairs_;
      begin_header(/*has_role=*/true);
    }
    push_header(id, out);
  }
  return ParserStop::kNone;
}

void HarmonyParser::begin_header(bool has_role) {
  state_ = State::kHeader;
  has_role_ = has_role;
  header_.clear();
}

void HarmonyParser::push_header(std::int32_t id, std::vector<ParserEvent>& out) {
  if (id == tokens_.message) {
    begin_content(out);
  } else if (id == tokens_.channel || id == tokens_.constrain) {
    utf8_.finish(header_);
    header_ += id == tokens_.channel ? kChannelMark : kConstrainMark;
  } else {
    utf8_.push(token_bytes_(id), header_);
  }
}

void HarmonyParser::push_content(std::int32_t id, std::vector<ParserEvent>& out) {
  if (id == tokens_.channel) {  // END START "assistant" is missing
    ++repairs_;
    close(/*is_cut=*/false, out);
    begin_header(/*has_role=*/false);
    header_ += kChannelMark;
  } else if (id == tokens_.message || id == tokens_.constrain) {
    ++repairs_;
  } else {
    std::string text;
    utf8_.push(token_bytes_(id), text);
    if (!text.empty()) {
      emit(ParserEvent::Type::kText, std::move(text), out);
    }
  }
}

void HarmonyParser::begin_content(std::vector<ParserEvent>& out) {
  utf8_.finish(header_);
  HarmonyHeader header = read_header(header_, has_role_, HeaderEnd::kMessage);
  repairs_ += header.repairs;
  const bool is_call = !header.recipient.empty();
  const Channel channel = header.channel.value_or(is_call ? Channel::kCommentary : Channel::kFinal);
  if (!header.leftover.empty()) {
    emit_message(channel, std::move(header.leftover), out);
  }
  current_ = {};
  current_.kind = is_call ? PartKind::kToolCall : kind_of(channel);
  current_.channel = channel;
  current_.recipient = std::move(header.recipient);
  current_.content_type = std::move(header.content_type);
  emit(ParserEvent::Type::kBegin, {}, out);
  state_ = State::kContent;
}

void HarmonyParser::close(bool is_cut, std::vector<ParserEvent>& out) {
  if (state_ == State::kContent) {
    std::string text;
    utf8_.finish(text);
    if (!text.empty()) {
      emit(ParserEvent::Type::kText, std::move(text), out);
    }
    emit(ParserEvent::Type::kEnd, {}, out);
  } else if (state_ == State::kHeader) {
    utf8_.finish(header_);
    HarmonyHeader header =
        read_header(header_, has_role_, is_cut ? HeaderEnd::kCut : HeaderEnd::kStop);
    repairs_ += header.repairs;
    if (!header.leftover.empty()) {
      emit_message(header.channel.value_or(Channel::kFinal), std::move(header.leftover), out);
    }
  }
}

void HarmonyParser::finish(std::vector<ParserEvent>& out) {
  close(/*is_cut=*/true, out);
  reset();
}

void HarmonyParser::reset() {
  begin_header(/*has_role=*/false);
  utf8_ = {};
}

void HarmonyParser::emit(ParserEvent::Type type, std::string text,
                         std::vector<ParserEvent>& out) const {
  out.push_back(current_);
  out.back().type = type;
  out.back().text = std::move(text);
}

void HarmonyParser::emit_message(Channel channel, std::string text, std::vector<ParserEvent>& out) {
  current_ = {};
  current_.kind = kind_of(channel);
  current_.channel = channel;
  emit(ParserEvent::Type::kBegin, {}, out);
  emit(ParserEvent::Type::kText, std::move(text), out);
  emit(ParserEvent::Type::kEnd, {}, out);
}

}  // namespace nibble::text
