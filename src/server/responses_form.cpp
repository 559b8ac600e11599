#include "server/responses_form.h"

#include <utility>

#include "server/receipt.h"
#include "server/usage.h"

namespace nibble::server {
namespace {

Json usage_of(const Usage& usage) {
  return {
      {"input_tokens", usage.prompt_tokens},
      {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
      {"output_tokens", usage.completion_tokens},
      {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

const char* status_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength: return "incomplete";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kStop:
    case FinishReason::kToolCalls: break;
  }
  return "completed";
}

class ResponsesForm final : public AnswerForm {
 public:
  explicit ResponsesForm(ResponsesOptions options)
      : options_(std::move(options)), response_(empty_response(options_)) {}

  void begin(std::string& out) override {
    event("response.created", {{"response", response_}}, out);
    event("response.in_progress", {{"response", response_}}, out);
  }

  void delta(std::size_t /*choice*/, const Delta& delta, std::string& out) override {
    switch (delta.kind) {
      case Delta::Kind::kReasoning:
        open(Kind::kReasoning,
             {{"type", "reasoning"},
              {"id", new_id("rs_")},
              {"summary", Json::array()},
              {"content", Json::array()},
              {"status", "in_progress"}},
             out);
        append("response.reasoning_text.delta", delta.text, out);
        break;
      case Delta::Kind::kContent:
        open(Kind::kMessage,
             {{"type", "message"},
              {"id", new_id("msg_")},
              {"status", "in_progress"},
              {"role", "assistant"},
              {"content", Json::array()}},
             out);
        append("response.output_text.delta", delta.text, out);
        break;
      case Delta::Kind::kToolCallBegin:
        close("completed", out);
        open(Kind::kCall,
             {{"type", "function_call"},
              {"id", new_id("fc_")},
              {"call_id", delta.tool_id},
              {"name", delta.text},
              {"arguments", ""},
              {"status", "in_progress"}},
             out);
        break;
      case Delta::Kind::kToolCallArguments:
        append("response.function_call_arguments.delta", delta.text, out);
        break;
      case Delta::Kind::kTokens: break;
    }
  }

  void end(std::size_t /*choice*/, const Response& response, std::string& out) override {
    complete(response, out);
    const std::string status = response_["status"];
    // OpenAI has no event for a cancelled response: clients know this one.
    event(status == "completed" ? "response.completed" : "response.incomplete",
          {{"response", response_}}, out);
  }

  void finish(const std::vector<Response>& /*responses*/, std::string& /*out*/) override {}

  void fail(const ApiError& error, std::string& out) override {
    close("incomplete", out);
    response_["status"] = "failed";
    response_["error"] = {{"code", "server_error"}, {"message", error.message}};
    options_.when_done(response_, turn_);
    event("response.failed", {{"response", response_}}, out);
  }

  HttpReply refusal(const ApiError& error) override {
    std::string ignored;
    fail(error, ignored);
    return error_reply(error);
  }

  Json whole(const std::vector<Response>& responses) override {
    std::string ignored;
    complete(responses.front(), ignored);
    return response_;
  }

 private:
  enum class Kind : std::uint8_t { kNone, kReasoning, kMessage, kCall };

  void event(const char* type, const Json& data, std::string& out) {
    Json whole = {{"type", type}, {"sequence_number", num_events_++}};
    whole.update(data);
    append_named_event(type, whole, out);
  }

  // Where an event belongs.
  Json place() const {
    Json out = {{"item_id", item_["id"]}, {"output_index", response_["output"].size()}};
    if (open_ != Kind::kCall) {
      out["content_index"] = 0;
    }
    return out;
  }

  Json part(const std::string& text) const {
    if (open_ == Kind::kReasoning) {
      return {{"type", "reasoning_text"}, {"text", text}};
    }
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }

  void open(Kind kind, Json item, std::string& out) {
    if (open_ == kind) {
      return;
    }
    close("completed", out);
    open_ = kind;
    item_ = std::move(item);
    event("response.output_item.added",
          {{"output_index", response_["output"].size()}, {"item", item_}}, out);
    if (kind != Kind::kCall) {
      Json added = place();
      added["part"] = part("");
      event("response.content_part.added", added, out);
    }
  }

  void append(const char* type, const std::string& text, std::string& out) {
    text_ += text;
    Json data = place();
    data["delta"] = text;
    if (open_ == Kind::kMessage) {
      data["logprobs"] = Json::array();
    }
    event(type, data, out);
  }

  void close(const char* status, std::string& out) {
    if (open_ == Kind::kNone) {
      return;
    }
    Json done = place();
    done[open_ == Kind::kCall ? "arguments" : "text"] = text_;
    if (open_ == Kind::kMessage) {
      done["logprobs"] = Json::array();
    }
    event(open_ == Kind::kReasoning ? "response.reasoning_text.done"
          : open_ == Kind::kMessage ? "response.output_text.done"
                                    : "response.function_call_arguments.done",
          done, out);
    if (open_ == Kind::kCall) {
      item_["arguments"] = text_;
    } else {
      Json part_done = place();
      part_done["part"] = part(text_);
      item_["content"].push_back(part_done["part"]);
      event("response.content_part.done", part_done, out);
    }
    item_["status"] = status;
    event("response.output_item.done",
          {{"output_index", response_["output"].size()}, {"item", item_}}, out);
    remember();
    response_["output"].push_back(std::move(item_));
    open_ = Kind::kNone;
    text_.clear();
  }

  // The item as a message that a following request continues.
  void remember() {
    if (open_ == Kind::kReasoning) {
      reasoning_ += text_;
      return;
    }
    ChatMessage message{.role = ChatRole::kAssistant, .reasoning = std::exchange(reasoning_, {})};
    if (open_ == Kind::kMessage) {
      message.content = text_;
    } else {
      message.tool_calls.push_back(
          {.id = item_["call_id"], .name = item_["name"], .arguments = text_});
    }
    turn_.push_back(std::move(message));
  }

  void complete(const Response& response, std::string& out) {
    const std::string status = status_of(response.finish_reason);
    close(status == "completed" ? "completed" : "incomplete", out);
    response_["status"] = status;
    if (response.finish_reason == FinishReason::kLength) {
      response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    if (status == "completed") {
      response_["completed_at"] = unix_time();
    }
    response_["usage"] = usage_of(response.usage);
    if (options_.wants_receipt) {
      response_["receipt"] = receipt_json(options_.request_id, {response});
    }
    options_.when_done(response_, turn_);
  }

  ResponsesOptions options_;
  Json response_;
  Json item_;  // while it is open
  Kind open_ = Kind::kNone;
  std::string text_;  // of that item so far
  std::string reasoning_;
  std::vector<ChatMessage> turn_;
  int num_events_ = 0;
};

}  // namespace

std::unique_ptr<AnswerForm> make_responses_form(ResponsesOptions options) {
  return std::make_unique<ResponsesForm>(std::move(options));
}

Json empty_response(const ResponsesOptions& options) {
  Json out = {{"id", options.id},
              {"object", "response"},
              {"created_at", options.created_at},
              {"completed_at", nullptr},
              {"status", "in_progress"},
              {"background", false},
              {"error", nullptr},
              {"incomplete_details", nullptr},
              {"output", Json::array()},
              {"usage", nullptr}};
  out.update(options.echoed);
  return out;
}

}  // namespace nibble::server
