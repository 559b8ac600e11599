// POST /v1/chat/completions
#include <utility>

#include "server/call_body.h"
#include "server/chat_body.h"
#include "server/generation_job.h"
#include "server/reply_frame.h"
#include "server/request_body.h"
#include "server/usage.h"

namespace nibble::server {
namespace {

const char* finish_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength: return "length";
    case FinishReason::kToolCalls: return "tool_calls";
    case FinishReason::kStop:
    case FinishReason::kCancelled: break;
  }
  return "stop";
}

Json call_json(const ToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

class ChatForm final : public AnswerForm {
 public:
  ChatForm(const ModelHost& host, FrameOptions options, bool wants_logprobs,
           std::size_t num_choices)
      : host_(host),
        frame_(std::move(options)),
        wants_logprobs_(wants_logprobs),
        held_(num_choices) {}

  void begin(std::string& out) override {
    for (std::size_t choice = 0; choice < held_.size(); ++choice) {
      append_chunk(choice, {{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}}, Json(),
                   out);
    }
  }

  void delta(std::size_t choice, const Delta& delta, std::string& out) override {
    const auto call = [&](Json value) {
      value["index"] = delta.tool_index;
      append_chunk(choice, {{"tool_calls", Json::array({std::move(value)})}}, Json(), out);
    };
    switch (delta.kind) {
      case Delta::Kind::kReasoning:
        append_chunk(choice, {{"reasoning_content", delta.text}, {"reasoning", delta.text}}, Json(),
                     out);
        break;
      case Delta::Kind::kContent:
        if (wants_logprobs_) {  // goes out with its token
          held_[choice] += delta.text;
        } else {
          append_chunk(choice, {{"content", delta.text}}, Json(), out);
        }
        break;
      case Delta::Kind::kToolCallBegin:
        call({{"index", 0},
              {"id", delta.tool_id},
              {"type", "function"},
              {"function", {{"name", delta.text}, {"arguments", ""}}}});
        break;
      case Delta::Kind::kToolCallArguments:
        call({{"index", 0}, {"function", {{"arguments", delta.text}}}});
        break;
      case Delta::Kind::kTokens: tokens(choice, delta.tokens, out); break;
    }
  }

  void end(std::size_t choice, const Response& response, std::string& out) override {
    flush(choice, Json(), out);
    append_chunk(choice, Json::object(), finish_of(response.finish_reason), out);
  }

  void finish(const std::vector<Response>& responses, std::string& out) override {
    frame_.append_end(total_usage(responses), responses, out);
  }

  void fail(const ApiError& error, std::string& out) override {
    ReplyFrame::append_failure(error, out);
  }

  Json whole(const std::vector<Response>& responses) override {
    Json choices = Json::array();
    for (const Response& response : responses) {
      choices.push_back(choice_json(choices.size(), response));
    }
    return frame_.whole(std::move(choices), total_usage(responses), responses);
  }

 private:
  Json choice_json(std::size_t index, const Response& response) const {
    Json message = {{"role", "assistant"},
                    {"content", response.content.empty() && !response.tool_calls.empty()
                                    ? Json()
                                    : Json(response.content)},
                    {"refusal", nullptr},
                    {"annotations", Json::array()}};
    if (!response.reasoning.empty()) {
      message["reasoning_content"] = response.reasoning;
      message["reasoning"] = response.reasoning;
    }
    for (const ToolCall& call : response.tool_calls) {
      message["tool_calls"].push_back(call_json(call));
    }
    Json logprobs;
    if (wants_logprobs_) {
      logprobs = {{"content", Json::array()}, {"refusal", nullptr}};
      for (const TokenLogprob& token : response.logprobs) {
        if (token.part == TokenPart::kContent) {
          logprobs["content"].push_back(logprob_json(token, host_));
        }
      }
    }
    return {{"index", index},
            {"message", std::move(message)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", finish_of(response.finish_reason)}};
  }

  void append_chunk(std::size_t choice, Json delta, Json finish, std::string& out,
                    Json logprobs = Json()) const {
    frame_.append_chunk({{"index", choice},
                         {"delta", std::move(delta)},
                         {"logprobs", std::move(logprobs)},
                         {"finish_reason", std::move(finish)}},
                        out);
  }

  void tokens(std::size_t choice, const std::vector<TokenLogprob>& tokens, std::string& out) {
    Json content = Json::array();
    for (const TokenLogprob& token : tokens) {
      if (token.part == TokenPart::kContent) {
        content.push_back(logprob_json(token, host_));
      }
    }
    if (!content.empty()) {
      flush(choice, {{"content", std::move(content)}, {"refusal", nullptr}}, out);
    }
  }

  void flush(std::size_t choice, Json logprobs, std::string& out) {
    if (!held_[choice].empty() || !logprobs.is_null()) {
      append_chunk(choice, {{"content", std::exchange(held_[choice], {})}}, Json(), out,
                   std::move(logprobs));
    }
  }

  const ModelHost& host_;
  ReplyFrame frame_;
  bool wants_logprobs_ = false;
  std::vector<std::string> held_;  // of each choice: text that waits for its log-probability
};

void refuse_unsupported(Fields& fields) {
  fields.refuse_unless_idle("audio", "not supported: this model writes text only");
  fields.refuse_unless_idle("prediction", "not supported");
  fields.refuse_unless_idle("web_search_options", "not supported");
  fields.refuse_unless_idle("prompt_logprobs", "not supported in chats");
  const Json* modalities = fields.array("modalities");
  for (std::size_t i = 0; modalities != nullptr && i < modalities->size(); ++i) {
    if ((*modalities)[i] != "text") {
      fields.refuse(
          not_supported("modalities", "modalities: want [\"text\"], this model writes text only"));
    }
  }
}

void read_logprobs(Fields& fields, Request& request) {
  const bool is_wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, 20);
  if (top.value_or(0) > 0 && !is_wanted) {
    fields.refuse(bad_request("top_logprobs", "top_logprobs: want it with logprobs true only"));
  }
  request.top_logprobs = is_wanted ? static_cast<std::int32_t>(top.value_or(0)) : -1;
}

}  // namespace

void chat_completions(const Call& call) {
  const std::optional<Json> body = body_of(call);
  if (!body.has_value()) {
    return;
  }
  std::optional<ApiError> fault;
  Fields fields(*body, "", fault);
  Request request{.prompt = ChatPrompt{}};
  auto& prompt = std::get<ChatPrompt>(request.prompt);
  read_model(fields, call.context);
  read_messages(fields, prompt);
  read_tools(fields, prompt);
  read_template(fields, prompt);
  read_sampling(fields, request);
  read_logprobs(fields, request);
  read_max_tokens(fields, {"max_completion_tokens", "max_tokens"}, 1, request);
  read_constraints(fields, request);
  refuse_unsupported(fields);
  const std::int64_t n = fields.integer("n", 1, kMostChoices).value_or(1);
  const StreamOptions stream = read_stream(fields);
  FrameOptions options{.id_prefix = "chatcmpl-",
                       .object = "chat.completion",
                       .chunk_object = "chat.completion.chunk",
                       .model = call.context.model_name(),
                       .fingerprint = fingerprint_of(call.loaded.host->info()),
                       .includes_usage = stream.includes_usage,
                       .wants_receipt = fields.boolean("receipt").value_or(false),
                       .request_id = call.exchange->request_id};
  if (fault.has_value()) {
    call.exchange->reply(error_reply(*fault));
    return;
  }
  GenerationJob job{.is_stream = stream.is_stream, .checks_tool_names = true};
  const auto count = static_cast<std::size_t>(n);
  job.form = std::make_unique<ChatForm>(*call.loaded.host, std::move(options),
                                        request.top_logprobs >= 0, count);
  job.questions.push_back({std::move(request), count});
  run_job(call, std::move(job));
}

}  // namespace nibble::server
