// Endpoints that generate nothing.
#include <fmt/format.h>

#include "server/call_body.h"
#include "server/chat_body.h"
#include "server/handlers.h"
#include "server/request_body.h"

namespace nibble::server {
namespace {

// What /tokenize is asked to encode; nothing and a fault otherwise.
std::optional<std::vector<std::int32_t>> ids_of(const Call& call, Fields& fields) {
  Result<std::vector<std::int32_t>> ids = std::vector<std::int32_t>();
  if (fields.has("messages")) {
    Request request{.prompt = ChatPrompt{}};
    auto& prompt = std::get<ChatPrompt>(request.prompt);
    read_messages(fields, prompt);
    read_tools(fields, prompt);
    read_template(fields, prompt);
    if (fields.failed()) {
      return std::nullopt;
    }
    ids = call.loaded.host->prompt_ids(request);
  } else {
    const char* name = fields.has("content") ? "content" : "prompt";  // llama.cpp's, or vLLM's
    const std::string text = fields.required_text(name);
    const bool with_special = fields.boolean("parse_special").value_or(false);
    if (fields.failed()) {
      return std::nullopt;
    }
    ids = call.loaded.host->encode(text, with_special);
  }
  if (!ids) {
    fields.refuse(from_status(ids.error()));
    return std::nullopt;
  }
  return *std::move(ids);
}

// Reads the body, then replies with what `make` gives, or with the fault.
template <typename Make>
void answer(const Call& call, Make make) {
  const std::optional<Json> body = body_of(call);
  if (!body.has_value()) {
    return;
  }
  std::optional<ApiError> fault;
  Fields fields(*body, "", fault);
  const Json reply = make(fields);
  call.exchange->reply(fault.has_value() ? error_reply(*fault) : HttpReply{.body = dump(reply)});
}

}  // namespace

void models(const Call& call) {
  Json list = Json::array();
  for (const std::string& name : call.context.options.model_names) {
    list.push_back({{"id", name},
                    {"object", "model"},
                    {"created", call.context.started_at},
                    {"owned_by", "nibble"},
                    {"root", call.context.model_name()},
                    {"max_model_len", call.loaded.host->info().max_model_len}});
  }
  call.exchange->reply({.body = dump({{"object", "list"}, {"data", list}})});
}

void tokenize(const Call& call) {
  answer(call, [&call](Fields& fields) -> Json {
    const auto ids = ids_of(call, fields);
    const bool wants_texts = fields.boolean("return_token_strs").value_or(false);
    if (!ids.has_value()) {
      return {};
    }
    Json reply = {{"count", ids->size()},
                  {"max_model_len", call.loaded.host->info().max_model_len},
                  {"tokens", *ids}};
    if (wants_texts) {
      reply["token_strs"] = Json::array();
      for (const std::int32_t id : *ids) {
        reply["token_strs"].push_back(call.loaded.host->token_bytes(id));
      }
    }
    return reply;
  });
}

void detokenize(const Call& call) {
  answer(call, [&call](Fields& fields) -> Json {
    if (!fields.has("tokens")) {
      fields.fail("tokens", "an array of token ids");
    }
    const std::vector<std::int32_t> ids = fields.ids("tokens");
    if (fields.failed()) {
      return {};
    }
    const std::int32_t vocab = call.loaded.host->info().vocab_size;
    for (const std::int32_t id : ids) {
      if (id >= vocab) {
        fields.refuse(bad_request(
            "tokens", fmt::format("tokens: want ids in 0..{}, found {}", vocab - 1, id)));
        return {};
      }
    }
    const Result<std::string> text = call.loaded.host->decode(ids);
    if (!text) {
      fields.refuse(from_status(text.error()));
      return {};
    }
    return {{"prompt", *text}, {"content", *text}};  // vLLM's name, and llama.cpp's
  });
}

void embeddings(const Call& call) {
  call.exchange->reply(error_reply(not_supported(
      "model", "this model generates text and has no embeddings; use a model made for them")));
}

void metrics(const Call& call) {
  call.exchange->reply({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = call.loaded.metrics->text(call.loaded.host->stats())});
}

}  // namespace nibble::server
