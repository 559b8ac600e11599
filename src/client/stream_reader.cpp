#include "client/stream_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "client/workload.h"

namespace nibble::client {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kShownBytes = 200;

Json parse(std::string_view text) { return Json::parse(text, nullptr, false); }

const Json& member(const Json& object, const char* name) {
  static const Json kNone;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : kNone;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

// OpenAI's {"error": {"message"}}, or what is said instead.
std::string error_message(const Json& json) {
  const Json& error = member(json, "error");
  const std::string message = text_of(member(error, "message"));
  return message.empty() ? text_of(error) : message;
}

struct Chunk {
  std::string text;
  bool has_token = false;
  bool is_end = false;
};

Chunk read_chunk(const Json& choice) {
  Chunk chunk{.is_end = !text_of(member(choice, "finish_reason")).empty()};
  const Json& delta = member(choice, "delta");
  const bool is_chat = delta.is_object();
  if (is_chat) {
    // Servers spell reasoning one way or the other, or both.
    const std::string reasoning = text_of(member(delta, "reasoning_content"));
    chunk.text = reasoning.empty() ? text_of(member(delta, "reasoning")) : reasoning;
    chunk.text += text_of(member(delta, "content"));
  } else {
    chunk.text = text_of(member(choice, "text"));
  }
  const bool has_call = member(delta, "tool_calls").is_array();
  const bool is_bare = chunk.is_end || member(delta, "role").is_string();
  chunk.has_token = !chunk.text.empty() || has_call || !is_bare;
  return chunk;
}

}  // namespace

void StreamReader::start(Clock::time_point now) {
  start_ = now;
  record_.start = std::chrono::duration<double>(now.time_since_epoch()).count();
}

double StreamReader::seconds_since_start() const {
  return std::chrono::duration<double>(now_ - start_).count();
}

void StreamReader::fail(std::string message) {
  if (record_.error.empty()) {
    record_.error = std::move(message);
  }
}

void StreamReader::read(std::string_view bytes, Clock::time_point now) {
  now_ = now;
  if (status_ == 200) {
    events_.feed(bytes, [this](std::string_view data) { take_event(data); });
  }
  // An answer that is not a stream is worth showing, too.
  if (num_token_chunks_ == 0 && refusal_.size() < (1U << 16)) {
    refusal_ += bytes;
  }
}

void StreamReader::take_event(std::string_view data) {
  if (data == "[DONE]") {
    has_end_ = true;
    return;
  }
  const Json json = parse(data);
  if (!json.is_object()) {
    fail(fmt::format("want a JSON object in each event, found '{}'", data.substr(0, kShownBytes)));
    return;
  }
  if (const std::string message = error_message(json); !message.empty()) {
    fail(message);
  }
  const Json& usage = member(json, "usage");
  if (const Json& count = member(usage, "completion_tokens"); count.is_number_integer()) {
    counted_output_ = count.get<std::int32_t>();
  }
  if (const Json& count = member(usage, "prompt_tokens"); count.is_number_integer()) {
    record_.input_len = count.get<std::int32_t>();
  }
  const Json& choices = member(json, "choices");
  if (!choices.is_array() || choices.empty()) {
    return;
  }
  const Chunk chunk = read_chunk(choices.front());
  record_.text += chunk.text;
  record_.latency = seconds_since_start();
  has_end_ = has_end_ || chunk.is_end;
  if (!chunk.has_token) {
    return;
  }
  if (num_token_chunks_++ == 0) {
    record_.ttft = seconds_since_start();
  } else {
    record_.itls.push_back(std::chrono::duration<double>(now_ - last_token_).count());
  }
  last_token_ = now_;
}

void StreamReader::end(const Status& status) {
  if (status_ == 200) {
    events_.finish([this](std::string_view data) { take_event(data); });
  }
  if (status_ != 0 && status_ != 200) {
    const std::string message = error_message(parse(refusal_));
    record_.error = fmt::format("HTTP {}: {}", status_,
                                message.empty() ? refusal_.substr(0, kShownBytes) : message);
  } else if (!status.ok()) {
    fail(status.message());
  } else if (num_token_chunks_ == 0) {
    fail(fmt::format("want a stream of tokens, found '{}'", refusal_.substr(0, kShownBytes)));
  } else if (!has_end_) {
    fail("the stream ended without [DONE] and without a finish reason");
  }
  record_.is_success = record_.error.empty();
}

Result<std::string> first_model(std::string_view json) {
  const Json parsed = parse(json);
  const Json& models = member(parsed, "data");
  const std::string id =
      models.is_array() && !models.empty() ? text_of(member(models.front(), "id")) : "";
  if (id.empty()) {
    return error(Code::kCorrupt, "want a list of models in /v1/models, found '{}'",
                 json.substr(0, kShownBytes));
  }
  return id;
}

Status check_extra_body(const std::string& extra) {
  if (!extra.empty() && !parse(extra).is_object()) {
    return error(Code::kInvalidArgument, "want a JSON object, found '{:.200}'", extra);
  }
  return {};
}

std::string request_body(const RequestShape& shape, const Prompt& prompt) {
  Json body = {
      {"model", shape.model}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
  if (shape.is_chat) {
    body["messages"] = Json::array({{{"role", "user"}, {"content", prompt.text}}});
    body["max_completion_tokens"] = prompt.output_len;
  } else {
    body["prompt"] = prompt.ids.empty() ? Json(prompt.text) : Json(prompt.ids);
    body["max_tokens"] = prompt.output_len;
  }
  if (shape.ignore_eos) {
    body["ignore_eos"] = true;
  }
  if (!shape.extra_body.empty()) {
    body.update(parse(shape.extra_body));
  }
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace nibble::client
