#include "cli/answer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace nibble::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDim = "\x1b[2m";
constexpr const char* kPlain = "\x1b[0m";
constexpr const char* kEraseLine = "\r\x1b[K";

const char* finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kToolCalls: return "tool_calls";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "stop";
}

double per_second(std::int32_t tokens, double ms) {
  return ms > 0.0 && tokens > 0 ? tokens * 1000.0 / ms : 0.0;
}

// The first token belongs to the prompt's time.
std::int32_t decoded(const Response& response) { return response.usage.completion_tokens - 1; }

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"reasoning_tokens", usage.reasoning_tokens},
          {"cached_tokens", usage.cached_tokens}};
}

Json timings_json(const Response& response, const EngineInfo& info) {
  const Timings& t = response.timings;
  return {
      {"load_ms", info.load_ms},
      {"queue_ms", t.queue_ms},
      {"prefill_ms", t.prefill_ms},
      {"decode_ms", t.decode_ms},
      {"prompt_per_second", per_second(response.usage.prompt_tokens, t.prefill_ms)},
      {"predicted_per_second", per_second(decoded(response), t.decode_ms)},
  };
}

Json logprobs_json(const std::vector<TokenLogprob>& tokens) {
  Json list = Json::array();
  for (const TokenLogprob& token : tokens) {
    Json top = Json::array();
    for (const auto& [id, logprob] : token.top) {
      top.push_back({{"id", id}, {"logprob", logprob}});
    }
    list.push_back({{"id", token.id}, {"logprob", token.logprob}, {"top", top}});
  }
  return list;
}

}  // namespace

void AnswerPrinter::write(const std::string& text) {
  if (!text.empty()) {
    out_.write(text);
    is_line_open_ = text.back() != '\n';
  }
}

void AnswerPrinter::enter(Section section) {
  if (section == section_) {
    return;
  }
  if (section_ == Section::kThinking) {
    out_.write(kEraseLine);
  }
  if (section_ == Section::kReasoning && out_.is_terminal()) {
    out_.write(kPlain);
  }
  if (is_line_open_) {
    write("\n");
  }
  if (section == Section::kReasoning) {
    out_.write(out_.is_terminal() ? kDim : "[reasoning]\n");
  } else if (section_ == Section::kReasoning) {
    out_.write(out_.is_terminal() ? "\n" : section == Section::kContent ? "[answer]\n" : "");
  }
  section_ = section;
}

void AnswerPrinter::print_id(std::int32_t id) {
  write(fmt::format("{}{}", ids_printed_ == 0 ? "" : ",", id));
  ++ids_printed_;
}

bool AnswerPrinter::print(const Delta& delta) {
  if (form_ == Form::kIds) {
    for (const TokenLogprob& token : delta.tokens) {
      print_id(token.id);
    }
    return out_.flush();
  }
  switch (delta.kind) {
    case Delta::Kind::kReasoning:
      if (show_reasoning_) {
        enter(Section::kReasoning);
        write(delta.text);
      } else if (out_.is_terminal() && section_ == Section::kNone) {
        enter(Section::kThinking);
        out_.write(fmt::format("{}thinking...{}", kDim, kPlain));
      }
      break;
    case Delta::Kind::kContent:
      enter(Section::kContent);
      write(delta.text);
      break;
    case Delta::Kind::kToolCallBegin:
      enter(Section::kNone);  // each call on a line of its own
      enter(Section::kToolCall);
      write(fmt::format("[tool call] {} ", delta.text));
      break;
    case Delta::Kind::kToolCallArguments: write(delta.text); break;
    case Delta::Kind::kTokens: break;
  }
  return out_.flush();
}

void AnswerPrinter::finish(const Response& response) {
  while (form_ == Form::kIds && ids_printed_ < response.ids.size()) {
    print_id(response.ids[ids_printed_]);
  }
  enter(Section::kNone);
  if (is_line_open_) {
    write("\n");
  }
  out_.flush();
}

std::string response_json(const Response& response, const EngineInfo& info) {
  Json calls = Json::array();
  for (const ToolCall& call : response.tool_calls) {
    calls.push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  Json json = {{"model", info.model},
               {"content", response.content},
               {"reasoning", response.reasoning},
               {"tool_calls", calls},
               {"ids", response.ids},
               {"finish_reason", finish_name(response.finish_reason)},
               {"stop_string", response.stop_string.empty() ? Json() : Json(response.stop_string)},
               {"seed", response.seed},
               {"usage", usage_json(response.usage)},
               {"timings", timings_json(response, info)}};
  if (!response.logprobs.empty()) {
    json["logprobs"] = logprobs_json(response.logprobs);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string timings_text(const Response& response, const EngineInfo& info) {
  const Usage& usage = response.usage;
  const Timings& t = response.timings;
  std::string text = fmt::format(
      "prompt {} tokens, {:.1f} tok/s; answer {} tokens, {:.1f} tok/s; first token after {:.2f} s",
      usage.prompt_tokens, per_second(usage.prompt_tokens, t.prefill_ms), usage.completion_tokens,
      per_second(decoded(response), t.decode_ms), (info.load_ms + t.queue_ms + t.prefill_ms) / 1e3);
  if (response.finish_reason == FinishReason::kLength) {
    const bool has_answer = response.reasoning.empty() || !response.content.empty();
    text += has_answer ? "; cut off at the token limit"
                       : "; cut off at the token limit while reasoning";
  }
  return text;
}

}  // namespace nibble::cli
