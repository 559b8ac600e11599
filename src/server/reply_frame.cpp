#include "server/reply_frame.h"

#include <fmt/format.h>

#include <utility>

#include "server/api_context.h"
#include "server/generation_job.h"
#include "server/receipt.h"
#include "server/usage.h"

namespace nibble::server {

std::string fingerprint_of(const EngineInfo& info) {
  return fmt::format("nibble-{}-{}", NIBBLE_VERSION, info.activation);
}

ReplyFrame::ReplyFrame(FrameOptions options)
    : options_(std::move(options)), id_(new_id(options_.id_prefix)), created_(unix_time()) {}

Json ReplyFrame::head(const char* object) const {
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", options_.model},
          {"system_fingerprint", options_.fingerprint}};
}

Json ReplyFrame::whole(Json choices, const Usage& usage, const std::vector<Response>& shown) const {
  Json out = head(options_.object);
  out["choices"] = std::move(choices);
  out["usage"] = usage_json(usage);
  if (options_.wants_receipt) {
    out["receipt"] = receipt_json(options_.request_id, shown);
  }
  return out;
}

void ReplyFrame::append_chunk(Json choice, std::string& out) const {
  Json chunk = head(options_.chunk_object);
  chunk["choices"] = Json::array({std::move(choice)});
  if (options_.includes_usage) {
    chunk["usage"] = nullptr;
  }
  append_event(chunk, out);
}

void ReplyFrame::append_end(const Usage& usage, const std::vector<Response>& responses,
                            std::string& out) const {
  if (options_.includes_usage || options_.wants_receipt) {
    Json last = head(options_.chunk_object);
    last["choices"] = Json::array();
    if (options_.includes_usage) {
      last["usage"] = usage_json(usage);
    }
    if (options_.wants_receipt) {
      last["receipt"] = receipt_json(options_.request_id, responses);
    }
    append_event(last, out);
  }
  out += "data: [DONE]\n\n";
}

void ReplyFrame::append_failure(const ApiError& error, std::string& out) {
  out.append("data: ").append(error_json(error)).append("\n\ndata: [DONE]\n\n");
}

}  // namespace nibble::server
