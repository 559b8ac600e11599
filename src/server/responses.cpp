// /v1/responses, and what is kept of it.
#include <fmt/format.h>

#include <utility>

#include "server/call_body.h"
#include "server/chat_body.h"
#include "server/generation_job.h"
#include "server/request_body.h"
#include "server/response_echo.h"
#include "server/responses_form.h"

namespace nibble::server {
namespace {

std::optional<ChatRole> role_of(Fields& item) {
  const auto role = item.choice("role", {"system", "developer", "user", "assistant"});
  if (!role.has_value()) {
    return std::nullopt;
  }
  return *role == "system"      ? ChatRole::kSystem
         : *role == "developer" ? ChatRole::kDeveloper
         : *role == "user"      ? ChatRole::kUser
                                : ChatRole::kAssistant;
}

// `reasoning` waits for the message or call that it led to.
void read_item(Fields& item, std::string& reasoning, ChatPrompt& prompt) {
  const std::string type = item.text("type").value_or("message");
  if (type == "message") {
    const auto role = role_of(item);
    if (!role.has_value()) {
      item.fail("role", "system, developer, user or assistant");
      return;
    }
    ChatMessage message{.role = *role, .content = read_content(item, "content")};
    if (*role == ChatRole::kAssistant) {
      message.reasoning = std::exchange(reasoning, {});
    }
    prompt.messages.push_back(std::move(message));
  } else if (type == "function_call") {
    ChatMessage message{.role = ChatRole::kAssistant, .reasoning = std::exchange(reasoning, {})};
    message.tool_calls.push_back({.id = item.required_text("call_id"),
                                  .name = item.required_text("name"),
                                  .arguments = item.required_text("arguments")});
    prompt.messages.push_back(std::move(message));
  } else if (type == "function_call_output") {
    ChatMessage message{.role = ChatRole::kTool, .content = read_content(item, "output")};
    message.tool_call_id = item.required_text("call_id");
    prompt.messages.push_back(std::move(message));
  } else if (type == "reasoning") {
    const Json* content = item.array("content");
    for (std::size_t i = 0; content != nullptr && i < content->size(); ++i) {
      const Json& part = (*content)[i];
      if (part.is_object() && part.contains("text") && part["text"].is_string()) {
        reasoning += part["text"].get_ref<const std::string&>();
      }
    }
  } else {
    item.fail("type", "message, function_call, function_call_output or reasoning");
  }
}

void read_input(Fields& fields, ChatPrompt& prompt) {
  const Json* input = fields.any("input");
  if (input != nullptr && input->is_string()) {
    prompt.messages.push_back({.content = input->get<std::string>()});
    return;
  }
  if (input == nullptr || !input->is_array() || input->empty()) {
    fields.fail("input", "a text, or an array of at least 1 item");
    return;
  }
  std::string reasoning;
  fields.each_object("input", [&](Fields& item) { read_item(item, reasoning, prompt); });
}

// Functions lie flat here, without a "function" object.
void read_flat_tools(Fields& fields, ChatPrompt& prompt) {
  fields.each_object("tools", [&](Fields& one) {
    if (one.required_text("type") != "function") {
      one.fail("type", "\"function\"");
    }
    prompt.tools.push_back(read_function(one, "parameters"));
  });
  read_tool_choice(fields, prompt);
}

void read_reasoning(Fields& fields, ChatPrompt& prompt) {
  read_template(fields, prompt);
  if (std::optional<Fields> reasoning = fields.inner("reasoning")) {
    prompt.effort = read_effort(*reasoning, "effort").value_or(prompt.effort);
  }
}

void read_text_format(Fields& fields, Request& request) {
  std::optional<Fields> text = fields.inner("text");
  std::optional<Fields> format = text.has_value() ? text->inner("format") : std::nullopt;
  if (format.has_value()) {
    read_format(*format, request);
  }
}

void refuse_unsupported(Fields& fields) {
  fields.refuse_unless_idle("background", "not supported: answers are made while the client waits");
  fields.refuse_unless_idle("conversation", "not supported; want previous_response_id");
  fields.refuse_unless_idle("prompt", "not supported: prompts cannot be stored");
  fields.refuse_unless_idle("top_logprobs", "not supported; chats have them");
}

void continue_from(const Call& call, Fields& fields, ChatPrompt& prompt) {
  const std::optional<std::string> id = fields.text("previous_response_id");
  if (!id.has_value()) {
    return;
  }
  const std::optional<StoredResponse> previous = call.context.responses.get(*id);
  if (!previous.has_value() || previous->cancel) {
    fields.refuse(
        {400,
         fmt::format("previous_response_id: want a stored and complete response, found "
                     "'{}', which is {}",
                     id->substr(0, 100), previous ? "being made" : "not (or no longer) kept"),
         "invalid_request_error", "previous_response_id", "previous_response_not_found"});
    return;
  }
  prompt.messages = previous->conversation;
}

// Instructions hold for one request; what is kept is the conversation without them.
void start(const Call& call, const Json& body, Request request, const std::string& instructions) {
  auto& prompt = std::get<ChatPrompt>(request.prompt);
  const bool is_stored = !body.contains("store") || body["store"] != false;
  ResponsesOptions options{.echoed = echoed(body, prompt, call.context.model_name()),
                           .id = new_id("resp_"),
                           .created_at = unix_time(),
                           .wants_receipt = body.value("receipt", Json()) == true,
                           .request_id = call.exchange->request_id};
  options.when_done = [&store = call.context.responses, is_stored, id = options.id,
                       conversation = prompt.messages](
                          const Json& response, const std::vector<ChatMessage>& turn) mutable {
    if (is_stored) {
      conversation.insert(conversation.end(), turn.begin(), turn.end());
      store.put(id, {dump(response), std::move(conversation), nullptr});
    } else {
      store.erase(id);
    }
  };
  if (!instructions.empty()) {
    prompt.messages.insert(prompt.messages.begin(),
                           {.role = ChatRole::kDeveloper, .content = instructions});
  }
  const std::string id = options.id;
  const std::string begun = dump(empty_response(options));
  GenerationJob job{.is_stream = body.value("stream", Json()) == true,
                    .needs_deltas = true,
                    .checks_tool_names = true};
  job.questions.push_back({std::move(request)});
  job.form = make_responses_form(std::move(options));
  job.when_made = [&](std::function<void()> cancel) {
    call.context.responses.put(id, {begun, {}, std::move(cancel)});
  };
  run_job(call, std::move(job));
}

// "/v1/responses/ID" or "/v1/responses/ID/cancel".
std::string id_in(const HttpRequest& request) {
  constexpr std::string_view kPrefix = "/v1/responses/";
  const std::string rest = request.path.substr(kPrefix.size());
  return rest.substr(0, rest.find('/'));
}

void refuse_unknown(const Call& call) {
  call.exchange->reply(error_reply(
      not_found(fmt::format("no response '{}' is kept", id_in(call.request).substr(0, 100)))));
}

}  // namespace

void responses(const Call& call) {
  const std::optional<Json> body = body_of(call);
  if (!body.has_value()) {
    return;
  }
  std::optional<ApiError> fault;
  Fields fields(*body, "", fault);
  Request request;
  auto& prompt = request.prompt.emplace<ChatPrompt>();
  read_model(fields, call.context);
  continue_from(call, fields, prompt);
  read_input(fields, prompt);
  read_flat_tools(fields, prompt);
  read_reasoning(fields, prompt);
  read_sampling(fields, request);
  read_max_tokens(fields, {"max_output_tokens"}, 1, request);
  read_text_format(fields, request);
  refuse_unsupported(fields);
  (void)fields.boolean("stream");
  (void)fields.boolean("store");
  (void)fields.object("metadata");
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key"}) {
    (void)fields.text(name);
  }
  const std::string instructions = fields.text("instructions").value_or("");
  if (fault.has_value()) {
    call.exchange->reply(error_reply(*fault));
    return;
  }
  start(call, *body, std::move(request), instructions);
}

void get_response(const Call& call) {
  const auto stored = call.context.responses.get(id_in(call.request));
  if (!stored.has_value()) {
    refuse_unknown(call);
    return;
  }
  call.exchange->reply({.body = stored->json});
}

void delete_response(const Call& call) {
  const std::string id = id_in(call.request);
  if (!call.context.responses.erase(id)) {
    refuse_unknown(call);
    return;
  }
  call.exchange->reply({.body = dump({{"id", id}, {"object", "response"}, {"deleted", true}})});
}

// What is over stays as it is.
void cancel_response(const Call& call) {
  const auto stored = call.context.responses.get(id_in(call.request));
  if (!stored.has_value()) {
    refuse_unknown(call);
    return;
  }
  if (!stored->cancel) {
    call.exchange->reply({.body = stored->json});
    return;
  }
  stored->cancel();
  Json response = Json::parse(stored->json);
  response["status"] = "cancelled";
  call.exchange->reply({.body = dump(response)});
}

}  // namespace nibble::server
