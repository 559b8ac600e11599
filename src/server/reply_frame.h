// What chats and completions write around their choices: the head of a reply or chunk, the end of a
// stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/json.h"
#include "server/model_host.h"

namespace nibble::server {

struct FrameOptions {
  const char* id_prefix = "";
  const char* object = "";        // of a whole reply
  const char* chunk_object = "";  // of a chunk
  std::string model;
  std::string fingerprint;      // `fingerprint_of` the engine
  bool includes_usage = false;  // in a stream: its last chunk
  bool wants_receipt = false;
  std::string request_id;
};

// OpenAI's system_fingerprint: equal seeds give equal answers as long as it stays.
std::string fingerprint_of(const EngineInfo& info);

class ReplyFrame {
 public:
  explicit ReplyFrame(FrameOptions options);

  // A whole reply. `shown`: those answers that the receipt is about.
  Json whole(Json choices, const Usage& usage, const std::vector<Response>& shown) const;

  // Events of a stream, appended to `out`.
  void append_chunk(Json choice, std::string& out) const;
  void append_end(const Usage& usage, const std::vector<Response>& responses,
                  std::string& out) const;
  static void append_failure(const ApiError& error, std::string& out);

 private:
  Json head(const char* object) const;

  FrameOptions options_;
  std::string id_;
  std::int64_t created_ = 0;
};

}  // namespace nibble::server
