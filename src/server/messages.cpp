// POST /v1/messages and /v1/messages/count_tokens: Anthropic's form.
#include <fmt/format.h>

#include <utility>

#include "server/call_body.h"
#include "server/chat_body.h"
#include "server/generation_job.h"
#include "server/receipt.h"
#include "server/request_body.h"
#include "server/usage.h"

namespace nibble::server {
namespace {

const char* stop_reason(const Response& response) {
  switch (response.finish_reason) {
    case FinishReason::kLength: return "max_tokens";
    case FinishReason::kToolCalls: return "tool_use";
    case FinishReason::kStop:
    case FinishReason::kCancelled: break;
  }
  return response.stop_string.empty() ? "end_turn" : "stop_sequence";
}

const char* error_type(int status) {
  switch (status) {
    case 400: return "invalid_request_error";
    case 401: return "authentication_error";
    case 404: return "not_found_error";
    case 503: return "overloaded_error";
    default: return "api_error";
  }
}

Json error_of(const ApiError& error) {
  return {{"type", "error"},
          {"error", {{"type", error_type(error.status)}, {"message", error.message}}}};
}

HttpReply refusal_of(const ApiError& error) {
  HttpReply reply = error_reply(error);
  reply.body = dump(error_of(error));
  return reply;
}

// Anthropic's calls have an object where the model wrote a text.
Json input_of(const std::string& arguments) {
  Json input = arguments.empty() ? Json::object() : Json::parse(arguments, nullptr, false);
  return input.is_object() ? input : Json({{"arguments", arguments}});
}

struct MessageOptions {
  std::string model;
  bool shows_thinking = false;
  std::int32_t num_prompt = 0;  // told by the first event of a stream
  bool wants_receipt = false;
  std::string request_id;
};

// Blocks follow each other: one is open at a time.
class MessageForm final : public AnswerForm {
 public:
  explicit MessageForm(MessageOptions options)
      : options_(std::move(options)), id_(new_id("msg_")) {}

  void begin(std::string& out) override {
    Json message = head();
    message["content"] = Json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = {{"input_tokens", options_.num_prompt}, {"output_tokens", 0}};
    event({{"type", "message_start"}, {"message", std::move(message)}}, out);
  }

  void delta(std::size_t /*choice*/, const Delta& delta, std::string& out) override {
    switch (delta.kind) {
      case Delta::Kind::kReasoning:
        if (options_.shows_thinking) {
          open("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, out);
          append("thinking_delta", "thinking", delta.text, out);
        }
        break;
      case Delta::Kind::kContent:
        open("text", {{"type", "text"}, {"text", ""}}, out);
        append("text_delta", "text", delta.text, out);
        break;
      case Delta::Kind::kToolCallBegin:
        close(out);
        open("tool_use",
             {{"type", "tool_use"},
              {"id", delta.tool_id},
              {"name", delta.text},
              {"input", Json::object()}},
             out);
        break;
      case Delta::Kind::kToolCallArguments:
        append("input_json_delta", "partial_json", delta.text, out);
        break;
      case Delta::Kind::kTokens: break;
    }
  }

  void end(std::size_t /*choice*/, const Response& response, std::string& out) override {
    close(out);
    event({{"type", "message_delta"}, {"delta", ending(response)}, {"usage", usage_of(response)}},
          out);
    Json stop = {{"type", "message_stop"}};
    add_receipt(response, stop);
    event(stop, out);
  }

  void finish(const std::vector<Response>& /*responses*/, std::string& /*out*/) override {}

  void fail(const ApiError& error, std::string& out) override { event(error_of(error), out); }

  Json whole(const std::vector<Response>& responses) override {
    std::string ignored;
    close(ignored);
    Json out = head();
    out["content"] = blocks_;
    out.update(ending(responses.front()));
    out["usage"] = usage_of(responses.front());
    add_receipt(responses.front(), out);
    return out;
  }

  HttpReply refusal(const ApiError& error) override { return refusal_of(error); }

 private:
  static void event(const Json& data, std::string& out) {
    append_named_event(data["type"].get_ref<const std::string&>(), data, out);
  }

  Json head() const {
    return {{"id", id_}, {"type", "message"}, {"role", "assistant"}, {"model", options_.model}};
  }

  static Json ending(const Response& response) {
    return {{"stop_reason", stop_reason(response)},
            {"stop_sequence", response.stop_string.empty() ? Json() : Json(response.stop_string)}};
  }

  static Json usage_of(const Response& response) {
    return {{"input_tokens", response.usage.prompt_tokens - response.usage.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", response.usage.cached_tokens},
            {"output_tokens", response.usage.completion_tokens}};
  }

  void open(const std::string& type, Json block, std::string& out) {
    if (open_ == type) {
      return;
    }
    close(out);
    open_ = type;
    event({{"type", "content_block_start"}, {"index", blocks_.size()}, {"content_block", block}},
          out);
    blocks_.push_back(std::move(block));
  }

  void append(const char* type, const char* field, const std::string& text, std::string& out) {
    text_ += text;
    event({{"type", "content_block_delta"},
           {"index", blocks_.size() - 1},
           {"delta", {{"type", type}, {field, text}}}},
          out);
  }

  void close(std::string& out) {
    if (open_.empty()) {
      return;
    }
    Json& block = blocks_.back();
    if (open_ == "tool_use") {
      block["input"] = input_of(text_);
    } else {
      block[open_] = text_;
    }
    event({{"type", "content_block_stop"}, {"index", blocks_.size() - 1}}, out);
    open_.clear();
    text_.clear();
  }

  void add_receipt(const Response& response, Json& out) const {
    if (options_.wants_receipt) {
      out["receipt"] = receipt_json(options_.request_id, {response});
    }
  }

  MessageOptions options_;
  std::string id_;
  Json blocks_ = Json::array();
  std::string open_;  // type of the last block, while it is open
  std::string text_;  // of that block so far
};

// One message of Anthropic's is several of ours: results of tools come before what the user says.
void read_block(Fields& block, ChatMessage& message, ChatPrompt& prompt) {
  const std::string type = block.required_text("type");
  if (type == "text") {
    message.content += block.required_text("text");
  } else if (type == "thinking") {
    message.reasoning += block.required_text("thinking");
  } else if (type == "redacted_thinking") {
    return;
  } else if (type == "tool_use") {
    const Json* input = block.object("input");
    message.tool_calls.push_back({.id = block.required_text("id"),
                                  .name = block.required_text("name"),
                                  .arguments = input == nullptr ? "{}" : dump(*input)});
  } else if (type == "tool_result") {
    ChatMessage result{.role = ChatRole::kTool, .content = read_content(block, "content")};
    result.tool_call_id = block.required_text("tool_use_id");
    prompt.messages.push_back(std::move(result));
  } else {
    block.fail("type", "text, thinking, tool_use or tool_result");
  }
}

void read_turn(Fields& fields, ChatPrompt& prompt) {
  const auto role = fields.choice("role", {"user", "assistant"});
  ChatMessage message{.role = role == "assistant" ? ChatRole::kAssistant : ChatRole::kUser};
  const Json* content = fields.any("content");
  if (!role.has_value()) {
    fields.fail("role", "user or assistant");
  } else if (content == nullptr || !content->is_array()) {
    message.content = fields.required_text("content");
    prompt.messages.push_back(std::move(message));
    return;
  }
  fields.each_object("content", [&](Fields& block) { read_block(block, message, prompt); });
  if (!message.content.empty() || !message.tool_calls.empty()) {
    prompt.messages.push_back(std::move(message));
  }
}

void read_turns(Fields& fields, ChatPrompt& prompt) {
  const std::string system = read_content(fields, "system");
  if (!system.empty()) {
    prompt.messages.push_back({.role = ChatRole::kSystem, .content = system});
  }
  const Json* messages = fields.array("messages");
  if (messages == nullptr || messages->empty()) {
    fields.fail("messages", "an array of at least 1 message");
    return;
  }
  fields.each_object("messages", [&](Fields& turn) { read_turn(turn, prompt); });
}

void read_message_tools(Fields& fields, ChatPrompt& prompt) {
  fields.each_object(
      "tools", [&](Fields& one) { prompt.tools.push_back(read_function(one, "input_schema")); });
  const Json* choice = fields.object("tool_choice");
  const Json type = choice == nullptr ? Json("auto") : choice->value("type", Json());
  if (type == "none") {
    prompt.tools.clear();
  } else if (type == "any") {
    prompt.tool_choice.kind = ToolChoice::Kind::kRequired;
  } else if (type == "tool") {
    const Json name = choice->value("name", Json());
    prompt.tool_choice = {ToolChoice::Kind::kNamed,
                          name.is_string() ? name.get<std::string>() : ""};
  } else if (type != "auto") {
    fields.fail("tool_choice", "an object of type auto, any, tool or none");
  }
  if (choice != nullptr && choice->value("disable_parallel_tool_use", Json()) == true) {
    prompt.parallel_tool_calls = false;
  }
}

// False: the refusal is sent.
bool read_conversation(const Call& call, Fields& fields, Request& request) {
  auto& prompt = request.prompt.emplace<ChatPrompt>();
  read_model(fields, call.context);
  read_turns(fields, prompt);
  read_message_tools(fields, prompt);
  read_template(fields, prompt);
  return !fields.failed();
}

}  // namespace

void messages(const Call& call) {
  std::optional<Json> body = body_of(call, &refusal_of);
  if (!body.has_value()) {
    return;
  }
  if (body->contains("stop_sequences")) {
    (*body)["stop"] = (*body)["stop_sequences"];
  }
  std::optional<ApiError> fault;
  Fields fields(*body, "", fault);
  Request request;
  (void)read_conversation(call, fields, request);
  read_sampling(fields, request);
  if (!fields.has("max_tokens")) {
    fields.fail("max_tokens", "a whole number from 1");
  }
  read_max_tokens(fields, {"max_tokens"}, 1, request);
  const Json* thinking = fields.object("thinking");
  MessageOptions options{
      .model = call.context.model_name(),
      .shows_thinking = thinking != nullptr && thinking->value("type", Json()) != Json("disabled"),
      .wants_receipt = fields.boolean("receipt").value_or(false),
      .request_id = call.exchange->request_id};
  const bool is_stream = fields.boolean("stream").value_or(false);
  if (!fault.has_value() && is_stream) {  // the first event tells it
    const Result<std::vector<std::int32_t>> ids = call.loaded.host->prompt_ids(request);
    if (!ids) {
      fault = from_status(ids.error());
    } else {
      options.num_prompt = static_cast<std::int32_t>(ids->size());
    }
  }
  if (fault.has_value()) {
    call.exchange->reply(refusal_of(*fault));
    return;
  }
  GenerationJob job{.is_stream = is_stream, .needs_deltas = true, .checks_tool_names = true};
  job.questions.push_back({std::move(request)});
  job.form = std::make_unique<MessageForm>(std::move(options));
  run_job(call, std::move(job));
}

void count_tokens(const Call& call) {
  const std::optional<Json> body = body_of(call, &refusal_of);
  if (!body.has_value()) {
    return;
  }
  std::optional<ApiError> fault;
  Fields fields(*body, "", fault);
  Request request;
  if (read_conversation(call, fields, request)) {
    const Result<std::vector<std::int32_t>> ids = call.loaded.host->prompt_ids(request);
    if (ids) {
      call.exchange->reply({.body = dump({{"input_tokens", ids->size()}})});
      return;
    }
    fault = from_status(ids.error());
  }
  call.exchange->reply(refusal_of(*fault));
}

}  // namespace nibble::server
