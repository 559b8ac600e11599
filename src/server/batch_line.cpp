#include "server/batch_line.h"

#include <fmt/format.h>

#include <limits>

#include "server/api_context.h"
#include "server/fields.h"

namespace nibble::server {
namespace {

std::string written(const BatchLine& line, Json response, Json error) {
  return dump({{"id", new_id("batch_req_")},
               {"custom_id", line.custom_id.empty() ? Json() : Json(line.custom_id)},
               {"response", std::move(response)},
               {"error", std::move(error)}}) +
         "\n";
}

void read_fields(Fields& fields, BatchLine& line) {
  line.custom_id = fields.required_text("custom_id");
  if (line.custom_id.empty()) {
    fields.fail("custom_id", "a text of at least 1 byte");
  }
  if (fields.choice("method", {"POST"}).value_or("").empty()) {
    fields.fail("method", "POST");
  }
  line.request.method = "POST";
  const auto url = fields.choice(
      "url", {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"});
  if (!url.has_value()) {
    fields.fail("url", "the path of an endpoint, such as /v1/chat/completions");
  }
  line.request.path = url.value_or("");
  const Json* body = fields.object("body");
  if (body == nullptr) {
    fields.fail("body", "an object");
    return;
  }
  std::optional<Fields> inner = fields.inner("body");
  if (inner->boolean("stream").value_or(false)) {
    inner->fail("stream", "false: a batch has whole replies");
  }
  line.request.body = dump(*body);
}

}  // namespace

BatchLine read_batch_line(std::string_view text, std::int64_t number) {
  BatchLine line{.number = number};
  Json object;
  ApiError error;
  if (!parse_body(text, object, error)) {
    line.fault = error;
    return line;
  }
  Fields fields(object, "", line.fault);
  read_fields(fields, line);
  return line;
}

std::string answered_line(const BatchLine& line, const std::string& request_id,
                          const HttpReply& reply) {
  return written(line,
                 {{"status_code", reply.status},
                  {"request_id", request_id},
                  {"body", Json::parse(reply.body, nullptr, false)}},
                 Json());
}

std::string refused_line(const BatchLine& line) {
  return written(line, Json(),
                 {{"code", "invalid_line"},
                  {"message", fmt::format("line {}: {}", line.number, line.fault->message)},
                  {"line", line.number}});
}

std::optional<BatchRecord> read_batch_record(std::string_view text) {
  const Json object = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!object.is_object()) {
    return std::nullopt;
  }
  BatchRecord out;
  std::optional<ApiError> fault;
  Fields fields(object, "", fault);
  const bool is_ours = fields.required_text("id").starts_with("batch_req_");
  out.custom_id = fields.text("custom_id").value_or("");
  std::optional<Fields> response = fields.inner("response");
  std::optional<Fields> error = fields.inner("error");
  if (response.has_value()) {
    out.is_failure = response->integer("status_code", 100, 999).value_or(0) >= 400;
  } else if (error.has_value()) {
    out.number = error->integer("line", 1, std::numeric_limits<std::int64_t>::max()).value_or(0);
    out.is_failure = true;
  }
  const bool is_whole = response.has_value() ? !out.custom_id.empty() : out.number > 0;
  return is_ours && is_whole && !fault.has_value() ? std::optional(out) : std::nullopt;
}

}  // namespace nibble::server
